"""Asking one plugin, as the cycle does."""

from collections.abc import Iterable

from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.plugin import Plugin, Prepared
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.status import SUCCESS, Status


def statuses(plugin: Plugin, pod: Pod, objects: Iterable[Object]) -> dict[str, Status]:
    """What the plugin says of every node; under "" what it says of the pod, if it lets nobody pass."""
    snapshot = snapshot_of(objects)
    status, prepared = plugin.prefilter(snapshot, pod)
    if not status.passed:
        return {"": status}
    return {name: SUCCESS if prepared is None else said(prepared, node) for name, node in snapshot.nodes.items()}


def said(prepared: Prepared, node: Node) -> Status:
    left_out = prepared.leaves_out(node)
    return prepared.filter(node) if left_out.passed else left_out


def refusals(plugin: Plugin, pod: Pod, objects: Iterable[Object]) -> dict[str, tuple[str, ...]]:
    """Node → reasons, of the nodes that are refused."""
    return {name: it.reasons for name, it in statuses(plugin, pod, objects).items() if not it.passed}


def scores(plugin: Plugin, pod: Pod, objects: Iterable[Object]) -> dict[str, int]:
    """Every node's score among all of them."""
    objects = list(objects)
    nodes = [value for value in objects if isinstance(value, Node)]
    _, prepared = plugin.prefilter(snapshot_of(objects), pod)
    found = [0] * len(nodes) if prepared is None else prepared.scores(nodes)
    return {node.name: score for node, score in zip(nodes, found, strict=True)}
