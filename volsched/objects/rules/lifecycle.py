"""What an object store guarantees, as decisions over the state of one object's stream.

Create, update and delete answer the event to be written, or None where nothing would change. resourceVersions are
log positions and are compared for equality only; a name that is used again gets a new uid.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from volsched.kube.defaults import with_defaults
from volsched.kube.grace_period import going, grace_seconds, shortened, time_left
from volsched.kube.kinds import Kind
from volsched.kube.limits import excess
from volsched.kube.manifest_reader import check_manifest
from volsched.kube.merge_patch import difference
from volsched.kube.meta import KEPT_METADATA, without_bookkeeping
from volsched.kube.problems import Defect
from volsched.kube.update_rules import update_problems
from volsched.kube.validation.field_errors import FieldError
from volsched.kube.validation.rules import creation_errors, status_errors, update_errors
from volsched.log.commands import ConflictError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import stream_of
from volsched.objects.rules.object_events import changed_event, created_event, deleted_event
from volsched.objects.rules.refusals import AlreadyExistsError, InvalidError, NotFoundError
from volsched.scheduling.rules.pod_scheduled import gated_conditions

Manifest = Mapping[str, Any]

PROTECTION = {
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "PersistentVolume": "kubernetes.io/pv-protection",
}
"""Finalizers that every object of the kind is born with."""
BORN_IN_PHASE = {
    "Namespace": "Active",
    "PersistentVolume": "Pending",
    "PersistentVolumeClaim": "Pending",
    "Pod": "Pending",
}


def create_object(state: State | None, kind: Kind, raw: Manifest, *, uid: str, now: str) -> NewEvent:
    """`now` is an RFC 3339 time. Status is the controllers' business: what the manifest says of it is dropped."""
    manifest, defects = _read(kind, raw)
    errors = creation_errors(kind, manifest)
    if errors or defects:
        raise InvalidError(_called(kind, manifest), errors or defects)
    name = _key(kind, manifest)
    if _living(state) is not None:
        raise AlreadyExistsError(f'{kind.name} "{name}" already exists; use another name, or update it')
    metadata = {**_without_store_fields(manifest), "uid": uid, "creationTimestamp": now}
    if kind.name in PROTECTION:
        given = [entry for entry in metadata.get("finalizers", ()) if entry != PROTECTION[kind.name]]
        metadata["finalizers"] = [*given, PROTECTION[kind.name]]
    created = {**manifest, "metadata": metadata}
    created.pop("status", None)
    if kind.name in BORN_IN_PHASE:
        created["status"] = {"phase": BORN_IN_PHASE[kind.name]}
    if kind.name == "Pod" and (conditions := gated_conditions(created, now)) is not None:
        created["status"]["conditions"] = conditions
    _refuse_excess(kind, name, created)
    return created_event(stream_of(kind.name, name), created)


def update_object(
    state: State | None,
    kind: Kind,
    raw: Manifest,
    *,
    status: bool = False,
    by_volume_controller: bool = False,
    same_uid: bool = True,
) -> NewEvent | None:
    """The whole object as it should be. A main update leaves the status alone, a status update all the rest.

    `same_uid`: a uid says which object is meant. Without, it is a field like others, which may not be changed.
    """
    manifest, shape_defects = _read(kind, raw)
    if _called(kind, manifest) == kind.name:
        raise InvalidError(kind.name, shape_defects)
    name = _key(kind, manifest)
    stored = _found(state, kind, name)
    wanted = manifest["metadata"]
    uid = wanted.get("uid") if same_uid else None
    _check_preconditions(stored, kind, name, uid=uid, rv=wanted.get("resourceVersion"))
    old = stored.manifest or {}
    if status:
        new = {**old, "status": manifest.get("status", {})}
        _refuse(kind, name, status_errors(kind, old, new) or shape_defects)
    else:
        kept = {field: old["metadata"][field] for field in KEPT_METADATA if field in old["metadata"]}
        given_uid = {"uid": wanted["uid"]} if not same_uid and wanted.get("uid") else {}
        new = {**manifest, "metadata": {**_without_store_fields(manifest), **kept, **given_uid}}
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
        if not by_volume_controller:
            # What was made before a default was known has it now, as whoever reads it would say.
            _refuse(kind, name, update_errors(kind, with_defaults(kind, old), new))
        _refuse(kind, name, shape_defects)
        _refuse(kind, name, update_problems(kind, old, new, by_volume_controller=by_volume_controller))
    if is_gone(new):
        return deleted_event(stream_of(kind.name, name), "the last finalizer is gone")
    patch = difference(old, new)
    if not patch:
        return None
    _refuse_excess(kind, name, new, old)
    return changed_event(stream_of(kind.name, name), patch)


def delete_object(
    state: State | None,
    kind: Kind,
    name: str,
    *,
    now: str,
    uid: str | None = None,
    rv: str | None = None,
    grace: int | None = 0,
) -> NewEvent | None:
    """With finalizers the object only learns that it is to go; it goes when the last of them does.

    `grace` are the seconds that a pod has to end; None: as many as it says itself (`core.grace`).
    """
    stored = _found(state, kind, name)
    _check_preconditions(stored, kind, name, uid=uid, rv=rv)
    old = stored.manifest or {}
    if "deletionTimestamp" in old["metadata"]:
        patch = shortened(old, grace, now) if time_left(old) else None
    else:
        patch = going(now, grace_seconds(old, grace) if kind.name == "Pod" else 0)
    if is_gone({**old, "metadata": {**old["metadata"], **(patch or {})}}):
        return deleted_event(stream_of(kind.name, name))
    return None if patch is None else changed_event(stream_of(kind.name, name), {"metadata": patch})


def is_gone(manifest: Manifest) -> bool:
    """It is to go, and nobody has to be waited for any more."""
    metadata = manifest["metadata"]
    return "deletionTimestamp" in metadata and not metadata.get("finalizers") and not time_left(manifest)


def _read(kind: Kind, raw: Manifest) -> tuple[dict[str, Any], list[Defect]]:
    manifest, _, defects = check_manifest(kind, raw)
    return manifest, defects


def _called(kind: Kind, manifest: Manifest) -> str:
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f'{kind.name} "{name}"' if name else kind.name


def _refuse(kind: Kind, name: str, defects: Sequence[Defect | FieldError]) -> None:
    if defects:
        raise InvalidError(f'{kind.name} "{name}"', defects)


def _refuse_excess(kind: Kind, name: str, manifest: Manifest, before: Manifest | None = None) -> None:
    told = excess(manifest, before)
    _refuse(kind, name, [] if told is None else [Defect((), told)])


def _key(kind: Kind, manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if kind.namespaced else str(metadata["name"])


def _living(state: State | None) -> ObjectState | None:
    return state if isinstance(state, ObjectState) and state.manifest is not None else None


def _found(state: State | None, kind: Kind, name: str) -> ObjectState:
    stored = _living(state)
    if stored is None:
        raise NotFoundError(f'{kind.name} "{name}" not found')
    return stored


def _check_preconditions(stored: ObjectState, kind: Kind, name: str, *, uid: str | None, rv: str | None) -> None:
    have, subject = (stored.manifest or {})["metadata"].get("uid"), f'{kind.name} "{name}"'
    if uid is not None and uid != have:
        message = f"{subject} has uid {have}, not {uid}: it was deleted and made anew"
        raise ConflictError(message, subject=subject, field="uid", wanted=uid, have=str(have))
    if rv is not None and rv != str(stored.rv):
        message = f"{subject} is at version {stored.rv}, not {rv}; read it again and retry"
        raise ConflictError(message, subject=subject, field="resourceVersion", wanted=rv, have=str(stored.rv))


def _without_store_fields(manifest: Manifest) -> dict[str, Any]:
    owned = (*KEPT_METADATA, "resourceVersion")
    named = without_bookkeeping(manifest["metadata"])
    return {field: value for field, value in named.items() if field not in owned}
