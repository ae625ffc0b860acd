"""Who owns an object, and whether that owner is gone: what garbage collection may take.

Nothing is collected that has no controller, that another owner still holds, or whose owner is of a kind that we do
not know: of such an owner nobody here can say that it is gone.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, metadata, uid
from volsched.log.events.decision import States
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.object_states import manifest_of
from volsched.log.events.streams import NOUN_OF_KIND, stream_of

COLLECTED = ("Pod", "PersistentVolumeClaim", "ControllerRevision")
"""Kinds of which an object goes with its controller. Volumes never do: what becomes of data, its policy says."""
OWNER_UNKNOWN = "OwnerUnknown"
REFERENCES = "ownerReferences"


class Owner(NamedTuple):
    """An owner as a reference names it."""

    stream: str
    """Empty where the kind is not one of ours."""
    uid: str
    kind: str
    controller: bool


def is_owned(state: State | None) -> bool:
    """At sight: most objects have no owner, and every change of every one of them is looked at."""
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
    """It has a controller, and every owner is gone: there is no object of that name, or one with another uid."""
    known = list(owners(manifest))
    return any(owner.controller for owner in known) and all(_is_gone(owner, states) for owner in known)


def controlled_by(owner: Manifest) -> dict[str, Any]:
    """The reference that a controller leaves on what it makes."""
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
