"""Remedies for a node that refuses a pod for other reasons than the volumes of its claims."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from volsched.kube.display_text import requirement_text
from volsched.kube.meta import HOSTNAME, TOPOLOGY_LABELS, Metadata
from volsched.kube.quantity import NANO, Quantity
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement, node_term_matches
from volsched.kube.storage import CSINode, CSINodeDriver
from volsched.kube.workloads import Node, Pod, PodAffinity, Taint, Toleration
from volsched.questions.explain.remedies_scene import RemedyScene, with_labels
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.scheduling.plugins.node_plugins import CORDONED, NO_EXECUTE, NO_SCHEDULE, tolerates
from volsched.scheduling.plugins.node_resources import CPU, pod_requests, room_of
from volsched.scheduling.plugins.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from volsched.scheduling.rules.cycle import NODE_VOLUME_LIMITS, VOLUME_RESTRICTIONS
from volsched.scheduling.rules.failure_memory import NODE_REJECTED, REJECTED_NODES
from volsched.scheduling.rules.pod_claims import claim_uses

PODS_TRIED = 5


def node_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    assert scene.verdict is not None
    make = _BY_PLUGIN.get(scene.verdict.plugin)
    if make is not None:
        yield from make(scene)


def _retry_rejected_nodes(scene: RemedyScene) -> Iterator[ClusterChange]:
    annotations = {key: text for key, text in scene.pod.meta.annotations.items() if key != REJECTED_NODES}
    pod = replace(scene.pod, meta=replace(scene.pod.meta, annotations=annotations))
    text = f"let {scene.pod.key} retry the nodes that rejected it: remove its annotation {REJECTED_NODES}"
    yield ClusterChange(kind=ChangeKind.REJECTED_NODE, text=text, touched=(pod,))


def _uncordon(scene: RemedyScene) -> Iterator[ClusterChange]:
    """A cordoned node has a taint as well. A real cluster removes it on uncordon, volsched does not."""
    others = tuple(it for it in scene.node.taints if it.key != CORDONED.key)
    node = replace(scene.node, unschedulable=False, taints=others)
    also = "" if others == scene.node.taints else f", and lift its taint {CORDONED.key}"
    text = f"uncordon node {node.name}{also}"
    yield ClusterChange(kind=ChangeKind.UNCORDON, text=text, touched=(node,), shape="uncordon")


def _tolerate_or_untaint(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Tolerate or remove all taints at once: one of two is not enough."""
    hard = [it for it in scene.node.taints if it.effect in (NO_SCHEDULE, NO_EXECUTE)]
    untolerated = [it for it in hard if not tolerates(scene.pod.tolerations, it)]
    taints = ", ".join(_taint_text(it) for it in untolerated)
    tolerations = (
        Toleration(key=it.key, operator="Equal", value=it.value, effect=it.effect) for it in untolerated
    )
    pod = replace(scene.pod, tolerations=(*scene.pod.tolerations, *tolerations))
    yield ClusterChange(kind=ChangeKind.TOLERATE, text=f"let {pod.key} tolerate {taints}", touched=(pod,))
    node = replace(scene.node, taints=tuple(it for it in scene.node.taints if it not in untolerated))
    text = f"remove the taint {taints} from node {node.name}"
    yield ClusterChange(kind=ChangeKind.UNTAINT, text=text, touched=(node,), shape=f"remove {taints}")


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _relax_or_label(scene: RemedyScene) -> Iterator[ClusterChange]:
    pod, node = scene.pod, scene.node
    wrong = {key: value for key, value in pod.node_selector.items() if node.labels.get(key) != value}
    required = pod.node_affinity.required
    term = None if required is None else _nearest_term(required, node)
    failing = () if term is None else tuple(_failing(term, node))
    yield from _relax_selection(pod, wrong, required, term, failing)
    labels = _labels_wanted(node, wrong, failing)
    if labels:
        yield label_node(node, labels)


def _relax_selection(
    pod: Pod,
    wrong: Mapping[str, str],
    required: NodeSelector | None,
    term: NodeTerm | None,
    failing: tuple[Requirement, ...],
) -> Iterator[ClusterChange]:
    relaxed, words = pod, []
    if wrong:
        labels = {key: value for key, value in pod.node_selector.items() if key not in wrong}
        relaxed = replace(relaxed, node_selector=labels)
        words += [f"nodeSelector {key}={value}" for key, value in sorted(wrong.items())]
    if required is not None and (term is None or failing):
        expressions = () if term is None else tuple(it for it in term.match_expressions if it not in failing)
        fields = () if term is None else tuple(it for it in term.match_fields if it not in failing)
        # The rest of the term is added as an alternative; if it is empty, the requirement is dropped.
        remaining = (NodeTerm(expressions, fields),) if expressions or fields else ()
        selector = NodeSelector((*required.node_selector_terms, *remaining)) if remaining else None
        relaxed = replace(relaxed, node_affinity=replace(relaxed.node_affinity, required=selector))
        words += [f"node affinity {requirement_text(it)}" for it in failing] or ["its required node affinity"]
    if words:
        text = f"drop {' and '.join(words)} from pod {pod.key}"
        yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=(relaxed,))


def _nearest_term(required: NodeSelector, node: Node) -> NodeTerm | None:
    """The term with the fewest requirements that the node fails; None if it fails no single requirement."""
    ranked = [(len(list(_failing(it, node))), it) for it in required.node_selector_terms]
    return min((it for it in ranked if it[0]), key=lambda it: it[0], default=(0, None))[1]


def _failing(term: NodeTerm, node: Node) -> Iterator[Requirement]:
    for part in term.match_expressions:
        if not node_term_matches(NodeTerm(match_expressions=(part,)), node.labels, name=node.name):
            yield part
    for part in term.match_fields:
        if not node_term_matches(NodeTerm(match_fields=(part,)), node.labels, name=node.name):
            yield part


def _labels_wanted(node: Node, wrong: Mapping[str, str], failing: Iterable[Requirement]) -> dict[str, str] | None:
    """Labels that would help, if they may be set: a label must not change a node's name or topology."""
    wanted = dict(wrong)
    for part in failing:
        if part.operator == "In" and part.values:
            wanted[part.key] = part.values[0]
        elif part.operator == "Exists":
            wanted[part.key] = ""
        else:
            return None
    return wanted if may_label(node, wanted) else None


def may_label(node: Node, labels: Iterable[str]) -> bool:
    return not any(key == HOSTNAME or (key in TOPOLOGY_LABELS and key in node.labels) for key in labels)


def label_node(node: Node, labels: Mapping[str, str]) -> ClusterChange:
    words = " ".join(f"{key}={labels[key]}" for key in sorted(labels))
    touched = (with_labels(node, labels),)
    text = f"label node {node.name} {words}"
    return ClusterChange(kind=ChangeKind.LABEL, text=text, touched=touched, shape=f"label {words}")


def _make_room(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Resources: lower the pod's requests, or remove other pods."""
    pod, others = scene.pod, _other_pods_there(scene)
    room, wanted = room_of(scene.node, others), pod_requests(pod)
    free_amounts = {name: room.allocatable.get(name, 0) - room.used.get(name, 0) for name in wanted}
    short = {name: free for name, free in free_amounts.items() if wanted[name] > free}
    if short and all(free > 0 for free in short.values()) and len(pod.containers) == 1 and not pod.overhead:
        least = {name: Quantity(free * (NANO // 1000 if name == CPU else NANO)) for name, free in short.items()}
        container = replace(pod.containers[0], requests={**pod.containers[0].requests, **least})
        words = ", ".join(f"{name} to {amount}" for name, amount in sorted(least.items()))
        text = f"lower the requests of {pod.key}: {words}"
        yield ClusterChange(
            kind=ChangeKind.LOWER_REQUEST, text=text, touched=(replace(pod, containers=(container,)),)
        )
    yield from _remove_pods(others)


def _other_pods_there(scene: RemedyScene) -> list[Pod]:
    pods = (it for it in scene.snapshot.pods.values() if it.node_name == scene.node.name)
    return sorted((it for it in pods if it.key != scene.pod.key), key=lambda it: (it.priority, it.key))


def _remove_pods(pods: Iterable[Pod]) -> Iterator[ClusterChange]:
    """Remove pods, the least important first."""
    for pod in list(pods)[:PODS_TRIED]:
        text = f"delete pod {pod.key}, or move it off node {pod.node_name}"
        yield ClusterChange(kind=ChangeKind.REMOVE_POD, text=text, removed=(pod,), shape="delete a pod")


def _remove_users_of_claims(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Removes a pod that uses one of the pod's claims, or one that is on the node."""
    claims = {use.key for use in claim_uses(scene.pod)}
    users = [
        it
        for it in scene.snapshot.pods.values()
        if it.key != scene.pod.key and it.node_name and any(use.key in claims for use in claim_uses(it))
    ]
    yield from _remove_pods({it.key: it for it in (*users, *_other_pods_there(scene))}.values())


def limit_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Free an attach slot, or install a missing driver."""
    assert scene.verdict is not None
    csi_node = scene.snapshot.csi_nodes.get(scene.node.name)
    installed = csi_node.drivers if csi_node is not None else ()
    for driver in sorted(scene.snapshot.drivers):
        if any(driver in reason for reason in scene.verdict.status.reasons):
            drivers = (*installed, CSINodeDriver(name=driver, node_id=scene.node.name))
            changed = CSINode(meta=Metadata(name=scene.node.name), drivers=drivers)
            text = f"install CSI driver {driver} on node {scene.node.name}"
            yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(changed,), shape=f"install {driver}")
    yield from _remove_pods(_other_pods_there(scene))


def _relax_spread(scene: RemedyScene) -> Iterator[ClusterChange]:
    pod, labels = scene.pod, scene.node.labels
    hard = [it for it in pod.spread if it.when_unsatisfiable == DO_NOT_SCHEDULE]
    for constraint in hard:
        changed = tuple(
            replace(it, when_unsatisfiable=SCHEDULE_ANYWAY) if it is constraint else it for it in pod.spread
        )
        text = (
            f"let {pod.key} spread over {constraint.topology_key} if it can: whenUnsatisfiable {SCHEDULE_ANYWAY}"
        )
        yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=(replace(pod, spread=changed),))
    missing = [it.topology_key for it in hard if it.topology_key not in labels]
    if not missing:
        yield from _remove_pods(_other_pods_there(scene))


def _relax_pod_affinity(scene: RemedyScene) -> Iterator[ClusterChange]:
    pod = scene.pod
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    for name, affinity in (("podAffinity", near), ("podAntiAffinity", far)):
        for term in affinity.required:
            less = PodAffinity(
                required=tuple(it for it in affinity.required if it is not term), preferred=affinity.preferred
            )
            relaxed = replace(pod, pod_affinity=less) if affinity is near else replace(pod, pod_anti_affinity=less)
            text = f"drop the required {name} over {term.topology_key} from pod {pod.key}"
            yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=(relaxed,))
    yield from _remove_pods(it for it in _other_pods_there(scene))


_BY_PLUGIN: Mapping[str, Callable[[RemedyScene], Iterator[ClusterChange]]] = {
    NODE_REJECTED: _retry_rejected_nodes,
    "NodeUnschedulable": _uncordon,
    "TaintToleration": _tolerate_or_untaint,
    "NodeAffinity": _relax_or_label,
    "NodeResourcesFit": _make_room,
    VOLUME_RESTRICTIONS: _remove_users_of_claims,
    NODE_VOLUME_LIMITS: limit_changes,
    "PodTopologySpread": _relax_spread,
    "InterPodAffinity": _relax_pod_affinity,
}
