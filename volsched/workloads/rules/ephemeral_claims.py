"""Generic ephemeral volumes: the claims that a pod's templates ask for, made for this pod and no other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volsched.kube.manifest import Manifest, metadata, spec
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.log.events.fold import ObjectState, State
from volsched.scheduling.rules.pod_claims import claim_uses, is_owned_by, not_owner
from volsched.workloads.rules.ownership import controlled_by

FAILED_BINDING = "FailedBinding"


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a pod's ephemeral volumes lack."""

    claims: tuple[dict[str, Any], ...] = ()
    """To be made."""
    refusals: tuple[str, ...] = ()
    """Claims of the right name that are not the pod's: they are neither used nor touched."""


def has_templates(pod: State | None) -> bool:
    """At sight: hardly any pod makes claims, and every change of every pod is looked at."""
    if not isinstance(pod, ObjectState) or pod.manifest is None:
        return False
    return any("ephemeral" in volume for volume in spec(pod.manifest).get("volumes") or ())


def ephemeral_claims(pod: Pod) -> tuple[str, ...]:
    """Keys of the claims that the pod makes."""
    return tuple(use.key for use in claim_uses(pod) if use.ephemeral)


def lacking(pod: Pod, manifest: Manifest, claims: Mapping[str, Claim]) -> Lacking:
    """`claims` are those that exist of `ephemeral_claims`. A pod that is being deleted gets nothing any more."""
    if pod.meta.being_deleted:
        return Lacking()
    made: list[dict[str, Any]] = []
    refusals: list[str] = []
    for volume in pod.volumes:
        if volume.claim_template is None:
            continue
        name = f"{pod.name}-{volume.name}"
        found = claims.get(f"{pod.namespace}/{name}")
        if found is None:
            made.append(_claim(name, volume.claim_template, manifest))
        elif not is_owned_by(found, pod):
            refusals.append(told_of(volume.name, not_owner(found, pod)))
        else:
            # The pod's own. One that is being deleted is made anew when it is gone.
            pass
    return Lacking(tuple(made), tuple(refusals))


def told_of(volume: str, why: str) -> str:
    """What the pod is told of an ephemeral volume that got no claim."""
    return f"ephemeral volume {volume}: {why}"


def _claim(name: str, template: Manifest, pod: Manifest) -> dict[str, Any]:
    kept = {field: value for field, value in metadata(template).items() if field in ("labels", "annotations")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            **kept,
            "name": name,
            "namespace": metadata(pod)["namespace"],
            "ownerReferences": [controlled_by(pod)],
        },
        "spec": spec(template),
    }
