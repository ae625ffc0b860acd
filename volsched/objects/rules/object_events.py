"""The events of an object's stream: edits, Kubernetes events about it, and the errors of refused writes."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from volsched.kube.kinds import KINDS, Kind
from volsched.kube.manifest import is_being_deleted, metadata
from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.kube.patches import difference
from volsched.kube.problems import Defect
from volsched.kube.server_side_apply import ApplyConflictError
from volsched.kube.validation.field_errors import FieldError
from volsched.log.commands import RejectedError
from volsched.log.events.catalogue import TITLES
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import noun_and_key, stream_of

Data = Mapping[str, Any]


def created_event(stream: str, manifest: Data) -> NewEvent:
    return NewEvent(stream=stream, type=f"{_title(stream)}Created", data={"patch": manifest})


def changed_event(stream: str, patch: Data, *, reason: str | None = None, binding: str | None = None) -> NewEvent:
    data = {"patch": patch} if reason is None else {"patch": patch, "reason": reason}
    return NewEvent(stream=stream, type=f"{_title(stream)}Changed", data=data, binding=binding)


def deleted_event(stream: str, reason: str | None = None) -> NewEvent:
    return NewEvent(
        stream=stream, type=f"{_title(stream)}Deleted", data={} if reason is None else {"reason": reason}
    )


def is_creation(event: NewEvent) -> bool:
    return event.type.endswith("Created")


def is_deletion(event: NewEvent) -> bool:
    return event.type.endswith("Deleted")


def _title(stream: str) -> str:
    return TITLES[noun_and_key(stream)[0]]


# Kubernetes events about objects: one object per message, counted when it is repeated.

SCHEDULER = "volsched-scheduler"
"""The component that reports the placement of pods."""


def notice_stream(kind: str, key: str, uid: str, reason: str, message: str) -> str:
    """The stream of the notice: the same message about the same object goes to the same stream."""
    namespace, _, name = key.rpartition("/")
    said = hashlib.sha256(f"{kind}\x1f{key}\x1f{uid}\x1f{reason}\x1f{message}".encode()).hexdigest()[:16]
    return f"notice/{namespace or DEFAULT_NAMESPACE}/{name}.{said}"


def notice_event(
    state: State | None,
    stream: str,
    *,
    kind: str,
    key: str,
    uid: str,
    type_: str,
    reason: str,
    message: str,
    component: str,
    now: str,
    binding: str | None = None,
) -> NewEvent:
    """`state` is that of the notice's stream; `now` is an RFC 3339 time."""
    told_before = state.manifest if isinstance(state, ObjectState) else None
    if told_before is not None:
        patch: dict[str, Any] = {
            "count": int(told_before.get("count", 1)) + 1,
            "lastTimestamp": now,
            "message": message,
        }
        return NewEvent(stream=stream, type="NoticeChanged", data={"patch": patch}, binding=binding)
    _, namespace, name = stream.split("/", 2)
    about = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "namespace": key.rpartition("/")[0],
        "name": key.rpartition("/")[2],
        "uid": uid,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": now},
        "involvedObject": {field: value for field, value in about.items() if value},
        "type": type_,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
    return NewEvent(stream=stream, type="NoticeCreated", data={"patch": manifest}, binding=binding)


def last_emission(state: State | None) -> tuple[int, str]:
    """The number of emissions of a notice, and the time of the last; (0, "") if never."""
    notice = state.manifest if isinstance(state, ObjectState) else None
    if notice is None:
        return 0, ""
    return int(notice.get("count", 1)), str(
        notice.get("lastTimestamp") or metadata(notice).get("creationTimestamp", "")
    )


# The errors of refused writes, each with its HTTP status. A refused write changes nothing.
#
# A change by another writer is `log.commands.ConflictError`, as for every other command.


class ObjectError(RejectedError):
    """The write changes nothing."""

    code = 500


class NotFoundError(ObjectError):
    code = 404


class AlreadyExistsError(ObjectError):
    code = 409


class InvalidError(ObjectError):
    code = 422

    def __init__(self, what: str, defects: Sequence[Defect | FieldError]) -> None:
        super().__init__(f"{what}: " + "; ".join(str(defect) for defect in defects))
        self.defects = defects


class FieldsOwnedError(ObjectError):
    """An apply would change fields of other managers."""

    code = 409

    def __init__(self, error: ApplyConflictError) -> None:
        super().__init__(str(error))
        self.conflicts = error.conflicts


class UntypedPatchError(ObjectError):
    """The applied manifest does not fit its type; Kubernetes reports that as an internal error."""

    def __init__(self, kind: Kind, manifest: Mapping[str, Any], why: str) -> None:
        named, (group, _, version) = manifest["metadata"], kind.api_version.rpartition("/")
        place = f"{named.get('namespace', '')}/{named.get('name', '')}; {group}/{version}, Kind={kind.name}"
        super().__init__(f"failed to create typed patch object ({place}): {why}")


class ForbiddenError(ObjectError):
    """The object is valid, but its surroundings forbid it; the message is that of Kubernetes' admission."""

    code = 403


# A controller's edit of an admitted object: the event, without validating the object again.
#
# As in an object store, a main update leaves the status alone and a status update everything else.

Manifest = Mapping[str, Any]


def edit_object(kind: str, key: str, old: Manifest, wanted: Manifest, *, status: bool) -> NewEvent | None:
    """The event of the edit; None where nothing would change."""
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
