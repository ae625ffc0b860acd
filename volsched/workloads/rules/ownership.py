"""The owners of objects and whether they are deleted; the claims of a pod's templates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, is_being_deleted, metadata, spec, uid
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.log.events.fold import ObjectState, State, States, manifest_of
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.scheduling.rules.pod_claims import claim_uses, is_owned_by
from volsched.scheduling.rules.reasons import claim_of_other_pod

# Never collected: objects without a controller, objects with another existing owner, and objects with an owner of
# an unknown kind, because we cannot know whether that owner is deleted.

COLLECTED = ("Pod", "PersistentVolumeClaim", "ControllerRevision")
"""Kinds that are deleted with their controller. Volumes never are: the reclaim policy decides about data."""
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
"""Finalizers of an owner that is being deleted: its dependents are orphaned, or deleted first."""
OWNER_UNKNOWN = "OwnerUnknown"
REFERENCES = "ownerReferences"


class Owner(NamedTuple):
    """An owner as a reference names it."""

    stream: str
    """Empty if the kind is not one of ours."""
    uid: str
    kind: str
    controller: bool


def is_owned(state: State | None) -> bool:
    """Whether the object has an owner. Cheap: most objects have none, and this runs for every change."""
    return (
        isinstance(state, ObjectState) and state.manifest is not None and REFERENCES in state.manifest["metadata"]
    )


def owners(manifest: Manifest) -> Iterator[Owner]:
    references = metadata(manifest).get(REFERENCES)
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict):
            yield _owner(manifest, reference)


def controller_of(manifest: Manifest) -> Owner | None:
    return next((owner for owner in owners(manifest) if owner.controller), None)


def is_orphan(manifest: Manifest, states: States) -> bool:
    """Whether it has a controller, and every owner is deleted: none has that name, or it has another uid."""
    known = list(owners(manifest))
    return any(owner.controller for owner in known) and all(_is_gone(owner, states) for owner in known)


def ending(manifest: Manifest) -> str | None:
    """The finalizer that decides about the object's dependents before it is removed."""
    if not is_being_deleted(manifest):
        return None
    finalizers = metadata(manifest).get("finalizers") or ()
    return next((it for it in (ORPHAN, FOREGROUND) if it in finalizers), None)


def without_owner(manifest: Manifest, owner_uid: str) -> dict[str, Any]:
    """The object without its references to that owner."""
    left = [it for it in metadata(manifest).get(REFERENCES) or () if it.get("uid") != owner_uid]
    named = {key: value for key, value in metadata(manifest).items() if key != REFERENCES}
    return {**manifest, "metadata": {**named, **({REFERENCES: left} if left else {})}}


def controlled_by(owner: Manifest) -> dict[str, Any]:
    """The reference that a controller puts on objects that it creates."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata(owner)["name"],
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def kept_orphan(owner: Owner) -> str:
    return (
        f"its owner, {owner.kind} {owner.stream.partition('/')[2]} with uid {owner.uid}, does not exist, and this "
        "store has never seen it; it is kept: delete it if it is not needed, or take the owner reference off"
    )


def _owner(manifest: Manifest, reference: Manifest) -> Owner:
    kind = str(reference.get("kind", ""))
    known = KINDS.get(kind) if kind in NOUN_OF_KIND else None
    stream = ""
    if known is not None and known.api_version == reference.get("apiVersion"):
        name = str(reference.get("name", ""))
        namespace = metadata(manifest).get("namespace", "")
        stream = stream_of(kind, f"{namespace}/{name}" if known.namespaced else name)
    return Owner(stream, str(reference.get("uid", "")), kind, reference.get("controller") is True)


def _is_gone(owner: Owner, states: States) -> bool:
    if not owner.stream or not owner.uid:
        return False
    found = manifest_of(states, owner.stream)
    return found is None or uid(found) != owner.uid


# Generic ephemeral volumes: the claims of a pod's templates, created for this pod alone.


@dataclass(frozen=True, slots=True)
class Lacking:
    """The missing claims of a pod's ephemeral volumes."""

    claims: tuple[dict[str, Any], ...] = ()
    """The claims to create."""
    refusals: tuple[str, ...] = ()
    """Notices about claims of the right name that are not the pod's: these are neither used nor changed."""


def has_templates(pod: State | None) -> bool:
    """Whether the pod has claim templates. Cheap: few pods do, and this runs for every change of a pod."""
    if not isinstance(pod, ObjectState) or pod.manifest is None:
        return False
    return any("ephemeral" in volume for volume in spec(pod.manifest).get("volumes") or ())


def ephemeral_claims(pod: Pod) -> tuple[str, ...]:
    """Keys of the pod's ephemeral claims."""
    return tuple(use.key for use in claim_uses(pod) if use.ephemeral)


def lacking(pod: Pod, manifest: Manifest, claims: Mapping[str, Claim]) -> Lacking:
    """The pod's missing claims. `claims`: the existing `ephemeral_claims`. A pod being deleted gets none."""
    if pod.meta.being_deleted:
        return Lacking()
    missing: list[dict[str, Any]] = []
    refusals: list[str] = []
    for volume in pod.volumes:
        if volume.claim_template is None:
            continue
        name = f"{pod.name}-{volume.name}"
        claim = claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            missing.append(_claim(name, volume.claim_template, manifest))
        elif not is_owned_by(claim, pod):
            refusals.append(volume_notice(volume.name, claim_of_other_pod(claim.key, pod.key)))
        else:
            # The pod's own claim. If it is being deleted, it is recreated afterwards.
            pass
    return Lacking(tuple(missing), tuple(refusals))


def volume_notice(volume: str, why: str) -> str:
    """The notice about an ephemeral volume that got no claim."""
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
