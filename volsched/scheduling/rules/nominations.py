"""Nominated pods: a pod that any scheduler is about to place counts as placed.

kube-scheduler nominates a pod while it binds the pod's volumes, and after a preemption. A decision that ignored
those pods would give away their resources and attach slots, and the kubelet would reject the second pod.
Only pods of the same or a higher priority count: the others give way. Labels and affinity do not count, because
the pod may still be placed elsewhere.
"""

from collections.abc import Iterable
from dataclasses import replace

from volsched.kube.workloads import TERMINATED, Pod, PodAffinity
from volsched.scheduling.rules.snapshot import Snapshot


def is_nominated(pod: Pod) -> bool:
    return pod.nominated_node != "" and not pod.node_name and pod.phase not in TERMINATED


def seats(nominated: Iterable[Pod], pod: Pod) -> list[Pod]:
    """The nominated pods that a decision about `pod` respects, each on its node."""
    return [_seat(it) for it in nominated if it.key != pod.key and it.priority >= pod.priority]


def with_seats(snapshot: Snapshot, pod: Pod) -> Snapshot:
    found = seats(filter(is_nominated, snapshot.pods.values()), pod)
    return replace(snapshot, pods={**snapshot.pods, **{it.key: it for it in found}}) if found else snapshot


def _seat(pod: Pod) -> Pod:
    return replace(
        pod,
        node_name=pod.nominated_node,
        meta=replace(pod.meta, labels={}),
        pod_affinity=PodAffinity(),
        pod_anti_affinity=PodAffinity(),
    )
