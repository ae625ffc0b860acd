"""A controller's edit of an object that was admitted before: the event, without validating the object again.

As in an object store, a main update leaves the status alone and a status update all the rest.
"""

from collections.abc import Mapping
from typing import Any

from volsched.kube.manifest import is_being_deleted, metadata
from volsched.kube.merge_patch import difference
from volsched.log.events.envelope import NewEvent
from volsched.log.events.streams import stream_of
from volsched.objects.rules.object_events import changed_event, deleted_event
from volsched.objects.rules.refusals import ObjectError

Manifest = Mapping[str, Any]


def edit_object(kind: str, key: str, old: Manifest, wanted: Manifest, *, status: bool) -> NewEvent | None:
    """None where nothing would change."""
    spec, told = (old, wanted) if status else (wanted, old)
    new = {**spec, "status": told.get("status", {})}
    if is_being_deleted(old) and _finalizers(new) - _finalizers(old):
        raise ObjectError(f"{kind} {key!r} is being deleted: no finalizer may be added to it")
    stream = stream_of(kind, key)
    if "deletionTimestamp" in metadata(new) and not metadata(new).get("finalizers"):
        return deleted_event(stream)
    patch = difference(old, new)
    return changed_event(stream, patch) if patch else None


def _finalizers(manifest: Manifest) -> frozenset[str]:
    return frozenset(metadata(manifest).get("finalizers") or ())
