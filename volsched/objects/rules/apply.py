"""Applying a manifest: make the object if it is not there, else bring it to what the manifest says of it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.merge_patch import merged
from volsched.kube.problems import Defect
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.objects.rules.lifecycle import create_object, update_object
from volsched.objects.rules.refusals import InvalidError

Manifest = Mapping[str, Any]


class Applied(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


def apply_object(
    state: State | None, kind: Kind, manifest: Manifest, *, uid: str, now: str
) -> tuple[NewEvent | None, Applied]:
    """Fields that the manifest does not name keep what they are; its lists replace the object's.

    Status is the controllers' business and is left alone.
    """
    living = state if isinstance(state, ObjectState) and state.manifest is not None else None
    if living is None or living.manifest is None:
        refuse_unknown_claim(kind, manifest)
        return create_object(state, kind, manifest, uid=uid, now=now), Applied.CREATED
    wanted = {**manifest, "status": None, "metadata": {**manifest["metadata"], "resourceVersion": None}}
    if not manifest["metadata"].get("uid"):
        wanted["metadata"].pop("uid", None)
    new = {**merged(living.manifest, wanted), "status": living.manifest.get("status", {})}
    event = update_object(living, kind, new)
    return event, Applied.UNCHANGED if event is None else Applied.CONFIGURED


def refuse_unknown_claim(kind: Kind, manifest: Manifest) -> None:
    """A claimRef with a uid names a claim of another store; here its volume would be released and reclaimed."""
    uid = (
        ((manifest.get("spec") or {}).get("claimRef") or {}).get("uid")
        if kind.name == "PersistentVolume"
        else None
    )
    if uid:
        message = "names a claim that this store has never seen; leave the uid out to reserve the volume by name"
        raise InvalidError(
            f'PersistentVolume "{manifest["metadata"]["name"]}"',
            [Defect(("spec", "claimRef", "uid"), message, uid)],
        )
