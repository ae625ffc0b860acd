"""Pods that use a claim, and which of them count."""

from collections.abc import Iterable

from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.requests import Manifest
from volsched.pv_controller.rules.view import Held
from volsched.scheduling.rules.pod_claims import claim_uses, is_owned_by

FINISHED = ("Succeeded", "Failed")


def is_terminated(pod: Held[Pod]) -> bool:
    """It has come to its end, or is being deleted and runs nothing any more."""
    if pod.value.phase in FINISHED:
        return True
    return pod.meta.being_deleted and not any(_runs(status) for status in _container_statuses(pod))


def waiting_pods(pods: Iterable[Held[Pod]]) -> list[str]:
    """Names of the pods that have yet to be scheduled."""
    return sorted(pod.meta.name for pod in pods if not is_terminated(pod) and not pod.value.node_name)


def active_pods(pods: Iterable[Held[Pod]]) -> list[str]:
    return sorted(pod.meta.key for pod in pods if not is_terminated(pod))


def placed_pods(pods: Iterable[Held[Pod]]) -> list[str]:
    """Keys of the pods that have a node and have not come to their end: they may be using the data."""
    return sorted(pod.meta.key for pod in pods if not is_terminated(pod) and pod.value.node_name)


def protects(pod: Held[Pod], claim: Claim) -> bool:
    """Does the pod keep the claim from going away?

    One with a node does, even when it has finished, because its volumes may still be mounted. A pod that makes
    the claim from a template stops to once it is shut down: its claim is to go with it.
    """
    if not pod.value.node_name:
        return False
    for use in claim_uses(pod.value):
        if use.key == claim.key and (
            not use.ephemeral or (is_owned_by(claim, pod.value) and not _is_shut_down(pod))
        ):
            return True
    return False


def _is_shut_down(pod: Held[Pod]) -> bool:
    return pod.meta.being_deleted and pod.manifest["metadata"].get("deletionGracePeriodSeconds") == 0


def _container_statuses(pod: Held[Pod]) -> Iterable[Manifest]:
    statuses: Iterable[Manifest] = (pod.manifest.get("status") or {}).get("containerStatuses") or ()
    return statuses


def _runs(status: Manifest) -> bool:
    state = status.get("state") or {}
    return "waiting" not in state and "terminated" not in state
