"""Who may be helped by a change: per plugin, the aspects it is registered for and the hint that is asked.

A pod that found no node waits for its *rejectors*, the plugins that refused it somewhere. Only their hints are
asked, and only those registered for what has changed; any that says yes wakes the pod. Names are Kubernetes'.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from volsched.kube.workloads import Pod
from volsched.scheduling.queue import node_hints as nodes
from volsched.scheduling.queue import pod_hints as pods
from volsched.scheduling.queue import volume_hints as volumes
from volsched.scheduling.queue.object_changes import Aspect, Aspects, ObjectChange
from volsched.scheduling.rules.cycle import (
    NODE_REJECTED,
    NODE_VOLUME_LIMITS,
    VOLUME_BINDING,
    VOLUME_RESTRICTIONS,
    VOLUME_ZONE,
)
from volsched.scheduling.rules.snapshot import Snapshot

Hint = Callable[[ObjectChange, Pod, Snapshot], bool]


def always(_: ObjectChange, __: Pod, ___: Snapshot) -> bool:
    return True


HINTS: Mapping[str, Mapping[Aspect, Hint]] = {
    "NodeUnschedulable": {Aspect.NODE_ADDED: nodes.is_uncordoned, Aspect.NODE_TAINTS: nodes.is_uncordoned},
    "NodeName": {Aspect.NODE_ADDED: always},
    "TaintToleration": {Aspect.NODE_ADDED: nodes.is_tolerated, Aspect.NODE_TAINTS: nodes.is_tolerated},
    "NodeAffinity": {Aspect.NODE_ADDED: nodes.is_selected, Aspect.NODE_LABELS: nodes.is_selected},
    "NodeResourcesFit": {
        Aspect.POD_LEFT: always,
        Aspect.POD_SHRANK: nodes.asks_for_less,
        Aspect.NODE_ADDED: nodes.has_more_room,
        Aspect.NODE_ALLOCATABLE: nodes.has_more_room,
    },
    "InterPodAffinity": {
        Aspect.POD_PLACED: pods.is_neighbour,
        Aspect.POD_LEFT: pods.is_neighbour,
        Aspect.POD_LABELS: pods.is_neighbour,
        # Any label: it may be the topology of those who keep the pod away, whatever its own terms name.
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        # [D] With a node its pods are gone too; Kubernetes waits until each of them is deleted.
        Aspect.NODE_REMOVED: always,
        Aspect.NAMESPACE_LABELS: always,
    },
    "PodTopologySpread": {
        Aspect.POD_PLACED: pods.shifts_balance,
        Aspect.POD_LEFT: pods.shifts_balance,
        Aspect.POD_LABELS: pods.shifts_balance,
        Aspect.NODE_ADDED: pods.shifts_domains,
        Aspect.NODE_REMOVED: pods.shifts_domains,
        Aspect.NODE_LABELS: pods.shifts_domains,
        Aspect.NODE_TAINTS: pods.counts_taints,
    },
    VOLUME_BINDING: {
        Aspect.CLASS_ADDED: always,
        Aspect.CLASS_TOPOLOGIES: always,
        Aspect.CLAIM_ADDED: volumes.uses_claim,
        Aspect.CLAIM_CHANGED: volumes.uses_claim,
        Aspect.CLAIM_LET_GO: volumes.has_unbound_claim,
        Aspect.VOLUME_ADDED: volumes.may_have_volume,
        Aspect.VOLUME_CHANGED: volumes.may_have_volume,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        Aspect.CSINODE_ADDED: always,
        Aspect.CSINODE_MIGRATED: always,
        Aspect.DRIVER_CHANGED: volumes.wants_no_capacity,
        Aspect.CAPACITY_ADDED: always,
        Aspect.CAPACITY_GREW: always,
        Aspect.CAPACITY_LET_GO: volumes.has_unbound_claim,
    },
    VOLUME_ZONE: {
        Aspect.CLASS_ADDED: volumes.is_delayed_class,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_LABELS: always,
        Aspect.CLAIM_ADDED: volumes.names_claim,
        Aspect.CLAIM_CHANGED: volumes.names_claim,
        Aspect.VOLUME_ADDED: volumes.may_have_volume,
        Aspect.VOLUME_CHANGED: volumes.zones_changed,
    },
    NODE_VOLUME_LIMITS: {
        Aspect.CSINODE_ADDED: always,
        Aspect.CSINODE_DRIVERS: volumes.limit_grew,
        Aspect.NODE_ADDED: always,
        Aspect.NODE_ALLOCATABLE: volumes.attachable_grew,
        Aspect.DRIVER_CHANGED: volumes.driver_may_be_missing,
        Aspect.POD_LEFT: volumes.had_volumes,
        Aspect.CLAIM_ADDED: volumes.uses_claim,
        Aspect.ATTACHMENT_REMOVED: volumes.uses_any_claim,
    },
    VOLUME_RESTRICTIONS: {
        Aspect.POD_LEFT: volumes.shared_a_volume,
        Aspect.NODE_ADDED: always,
        Aspect.CLAIM_ADDED: volumes.names_claim,
    },
    # No plugin of Kubernetes: nodes that turned the pod away themselves (`core.rejected`).
    NODE_REJECTED: dict.fromkeys(
        (
            Aspect.NODE_ADDED,
            Aspect.NODE_LABELS,
            Aspect.NODE_TAINTS,
            Aspect.NODE_ALLOCATABLE,
            Aspect.CSINODE_ADDED,
            Aspect.CSINODE_DRIVERS,
        ),
        always,
    ),
}


def are_known(rejectors: frozenset[str]) -> bool:
    """A plugin that registered nothing is not one of ours (an extender, or one added from outside), and a pod
    without rejectors had no node to be refused by: any change may help those.
    """
    return bool(rejectors) and all(plugin in HINTS for plugin in rejectors)


@lru_cache(maxsize=4_096)
def hints_for(rejectors: frozenset[str], aspects: Aspects) -> tuple[Hint, ...]:
    """The hints to ask, in no particular order; none: the change can help nobody whom these plugins refused."""
    if not are_known(rejectors):
        return (always,)
    asked = (HINTS[plugin].get(aspect) for plugin in sorted(rejectors) for aspect in sorted(aspects))
    return tuple(dict.fromkeys(hint for hint in asked if hint is not None))


def helps(hints: tuple[Hint, ...], change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """A hint that fails counts as yes: to look once too often costs a decision, not to look costs five minutes."""
    for hint in hints:
        try:
            if hint(change, pod, snapshot):
                return True
        except Exception:
            return True
    return False
