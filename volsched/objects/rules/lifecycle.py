"""Creation, update and deletion of an object, as decisions over its stream; and adoption of existing objects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from volsched.kube.defaults import with_defaults
from volsched.kube.grace_period import going, grace_seconds, shortened, time_left
from volsched.kube.kinds import Kind
from volsched.kube.known_fields import type_of
from volsched.kube.manifest import Manifest, claim_of, metadata, status, uid
from volsched.kube.manifest_reader import read_manifest
from volsched.kube.meta import KEPT_METADATA, without_bookkeeping
from volsched.kube.patches import difference
from volsched.kube.pod_defaults import qos_class
from volsched.kube.problems import Defect, excess
from volsched.kube.server_side_apply import FieldOwner, after_update, managed_fields
from volsched.kube.validation.field_errors import FieldError
from volsched.kube.validation.fields import update_errors as metadata_update_errors
from volsched.kube.validation.rules import creation_errors, status_errors, update_errors
from volsched.log.commands import ConflictError
from volsched.log.events.catalogue import TITLES
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.objects.rules.object_events import (
    AlreadyExistsError,
    InvalidError,
    NotFoundError,
    changed_event,
    created_event,
    deleted_event,
)
from volsched.pv_controller.rules.reasons import GIVEN_UP
from volsched.scheduling.rules.attempts import gated_conditions

# Create, update and delete return the event to be written, or None where nothing would change. resourceVersions
# are log positions and are compared for equality only; a reused name gets a new uid.

PROTECTION = {
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "PersistentVolume": "kubernetes.io/pv-protection",
}
"""Finalizers that every new object of the kind gets."""
POD = "Pod"
NAMESPACE = "Namespace"
NAMESPACE_FINALIZER = "kubernetes"
"""The finalizer in a namespace's spec: the namespace is deleted when it is empty."""
BORN_IN_PHASE = {
    NAMESPACE: "Active",
    "PersistentVolume": "Pending",
    "PersistentVolumeClaim": "Pending",
    POD: "Pending",
}
POD_SPEC_OF_ADMISSION = ("priority", "preemptionPolicy")
POD_STATUS_OF_CREATION = ("qosClass",)
"""Fields that the server set at a pod's creation: an update without them leaves them unchanged."""
NOTES = ("labels", "annotations")
WITH_GENERATION = frozenset({POD, "PodDisruptionBudget", "PriorityClass", "StatefulSet"})
"""Kinds with a generation, which grows with every new spec and with the deletion."""


def create_object(state: State | None, kind: Kind, raw: Manifest, *, uid: str, now: str) -> NewEvent:
    """Create the object; `now` is an RFC 3339 time. Controllers own the status: the manifest's is dropped."""
    manifest, _, defects = read_manifest(kind, raw)
    if errors := defects or creation_errors(kind, manifest):
        raise InvalidError(_called(kind, manifest), errors)
    name = _key(kind, manifest)
    if _living(state) is not None:
        raise AlreadyExistsError(f'{kind.name} "{name}" already exists; use another name, or update it')
    metadata = {**_without_store_fields(manifest), "uid": uid, "creationTimestamp": now}
    if kind.name in WITH_GENERATION:
        metadata["generation"] = 1
    if kind.name in PROTECTION:
        given = [entry for entry in metadata.get("finalizers", ()) if entry != PROTECTION[kind.name]]
        metadata["finalizers"] = [*given, PROTECTION[kind.name]]
    created = {**manifest, "metadata": metadata}
    created.pop("status", None)
    if kind.name == NAMESPACE:
        created["spec"] = {**created.get("spec", {}), "finalizers": [NAMESPACE_FINALIZER]}
    if kind.name in BORN_IN_PHASE:
        created["status"] = {"phase": BORN_IN_PHASE[kind.name]}
    if kind.name == POD:
        created["status"]["qosClass"] = qos_class(created["spec"])
        if (conditions := gated_conditions(created, now)) is not None:
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
    by: FieldOwner | None = None,
    owners: Sequence[FieldOwner] | None = None,
) -> NewEvent | None:
    """Replace the object. A main update leaves the status alone, a status update everything
    else except a pod's labels and annotations.

    `same_uid`: a uid identifies the object; if False, it is an ordinary field that may not be changed. `by` is
    the writer, for objects whose fields have owners; `owners`: the owners after an apply.
    """
    manifest, _, defects = read_manifest(kind, raw)
    if _called(kind, manifest) == kind.name:
        raise InvalidError(kind.name, defects or creation_errors(kind, manifest))
    name = _key(kind, manifest)
    stored = _existing_object(state, kind, name)
    wanted = manifest["metadata"]
    uid = wanted.get("uid") if same_uid else None
    _check_preconditions(stored, kind, name, uid=uid, rv=wanted.get("resourceVersion"))
    old = stored.manifest or {}
    if status:
        new = {**old, "status": manifest.get("status", {})}
        if kind.name == POD:
            new = _with_kept(old, new, "status", POD_STATUS_OF_CREATION)
            new["metadata"] = _with_notes(old["metadata"], wanted)
            given_uid = {} if same_uid else _uid(wanted)
            named = {**new["metadata"], **given_uid}
            _refuse(kind, name, metadata_update_errors(old, {**new, "metadata": named}))
        _refuse(kind, name, status_errors(kind, old, new) or defects)
    else:
        kept = {field: old["metadata"][field] for field in KEPT_METADATA if field in old["metadata"]}
        given_uid = {} if same_uid else _uid(wanted)
        new = {**manifest, "metadata": {**_without_store_fields(manifest), **kept, **given_uid}}
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
        if kind.name == POD:
            new = _with_kept(old, new, "spec", POD_SPEC_OF_ADMISSION)
        if kind.name in WITH_GENERATION and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = next_generation(old)
        if kind.name == NAMESPACE and not by_volume_controller:
            # Only the controller that empties the namespace removes its finalizer.
            new = {key: value for key, value in new.items() if key != "spec"}
            new |= {"spec": old["spec"]} if "spec" in old else {}
        # An object stored before a default existed counts as having it, because its readers apply it.
        before = with_defaults(kind, old)
        _refuse(kind, name, update_errors(kind, before, new, by_controller=by_volume_controller) or defects)
    if owners is None and by is not None and "managedFields" in old["metadata"]:
        owners = after_update(old, new, type_of(kind), by)
    if owners is not None:
        new["metadata"] = {**new["metadata"], "managedFields": managed_fields(owners)}
    if is_gone(new):
        return deleted_event(stream_of(kind.name, name), "the last finalizer is gone")
    patch = difference(old, new)
    if not patch:
        return None
    _refuse_excess(kind, name, new, old)
    return changed_event(stream_of(kind.name, name), patch)


def _uid(named: Mapping[str, Any]) -> dict[str, Any]:
    return {"uid": named["uid"]} if named.get("uid") else {}


def _with_notes(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A status update of a pod writes labels and annotations too: its fence is an annotation."""
    others = {name: value for name, value in before.items() if name not in NOTES}
    return others | {name: wanted[name] for name in NOTES if name in wanted}


def _with_kept(old: Manifest, new: dict[str, Any], part: str, names: tuple[str, ...]) -> dict[str, Any]:
    before, after = old.get(part), new.get(part)
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return new
    kept = {name: before[name] for name in names if name in before and after.get(name) is None}
    return {**new, part: {**after, **kept}} if kept else new


def delete_object(
    state: State | None,
    kind: Kind,
    name: str,
    *,
    now: str,
    uid: str | None = None,
    rv: str | None = None,
    grace: int | None = 0,
    finalizer: str | None = None,
) -> NewEvent | None:
    """Delete the object. With finalizers it is only marked for deletion, until the last of them is removed.

    `grace` are the seconds that a pod has to terminate; None: the pod's own (`kube.grace_period`). `finalizer`: of
    the controller that must handle the dependents first.
    """
    stored = _existing_object(state, kind, name)
    _check_preconditions(stored, kind, name, uid=uid, rv=rv)
    old = stored.manifest or {}
    if "deletionTimestamp" in old["metadata"]:
        patch = shortened(old, grace, now) if time_left(old) else None
    else:
        patch = going(now, grace_seconds(old, grace) if kind.name == POD else 0)
        if kind.name in WITH_GENERATION:
            patch["generation"] = next_generation(old)
        if finalizer is not None and finalizer not in (held := old["metadata"].get("finalizers", [])):
            patch["finalizers"] = [*held, finalizer]
    if is_gone({**old, "metadata": {**old["metadata"], **(patch or {})}}):
        return deleted_event(stream_of(kind.name, name))
    if patch is None:
        return None
    told = {"status": {"phase": "Terminating"}} if kind.name == NAMESPACE else {}
    return changed_event(stream_of(kind.name, name), {"metadata": patch, **told})


def next_generation(manifest: Manifest) -> int:
    """The generation after a change; an object without one counts as being at its first."""
    return int(manifest["metadata"].get("generation", 1)) + 1


def is_gone(manifest: Manifest) -> bool:
    """Whether the object is marked for deletion and no finalizer or grace period delays it any more."""
    metadata = manifest["metadata"]
    if manifest.get("kind") == NAMESPACE and (manifest.get("spec") or {}).get("finalizers"):
        return False
    return "deletionTimestamp" in metadata and not metadata.get("finalizers") and not time_left(manifest)


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


def _existing_object(state: State | None, kind: Kind, name: str) -> ObjectState:
    stored = _living(state)
    if stored is None:
        raise NotFoundError(f'{kind.name} "{name}" not found')
    return stored


def _check_preconditions(stored: ObjectState, kind: Kind, name: str, *, uid: str | None, rv: str | None) -> None:
    have, subject = (stored.manifest or {})["metadata"].get("uid"), f'{kind.name} "{name}"'
    if uid is not None and uid != have:
        message = f"{subject} has uid {have}, not {uid}: it was deleted and recreated"
        raise ConflictError(message, subject=subject, field="uid", wanted=uid, have=str(have))
    if rv is not None and rv != str(stored.rv):
        message = f"{subject} is at version {stored.rv}, not {rv}; read it again and retry"
        raise ConflictError(message, subject=subject, field="resourceVersion", wanted=rv, have=str(stored.rv))


def _without_store_fields(manifest: Manifest) -> dict[str, Any]:
    owned = (*KEPT_METADATA, "resourceVersion")
    named = without_bookkeeping(manifest["metadata"])
    return {field: value for field, value in named.items() if field not in owned}


# Adopting objects from another cluster unchanged: uid, age, status and all.
#
# A claimRef with a uid binds a volume to one claim for good. If that claim is not adopted too, it counts as
# deleted, and the volume would be reclaimed with its data. So such a volume is refused, unless its own status says
# that its claim is gone.

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"


def adopted(kind: Kind, key: str, manifest: Manifest, *, uid: str, now: str) -> NewEvent:
    """The creation of the object unchanged; `uid` and `now` are for an object without uid or creation time.

    Its resourceVersion belongs to the other cluster's history, and is dropped.
    """
    named = {field: value for field, value in metadata(manifest).items() if field != "resourceVersion"}
    patch: dict[str, Any] = {**manifest, "metadata": {"uid": uid, "creationTimestamp": now, **named}}
    return NewEvent(
        stream=stream_of(kind.name, key), type=f"{TITLES[NOUN_OF_KIND[kind.name]]}Created", data={"patch": patch}
    )


def unresolved(kind: Kind, manifest: Manifest, claims: Mapping[str, str]) -> Iterator[Defect]:
    """References of a volume to a claim that is not among these (key → uid)."""
    ref = claim_of(manifest) if kind.name == VOLUME else None
    wanted = None if ref is None else ref.get("uid")
    if not ref or not wanted or status(manifest).get("phase") in GIVEN_UP:
        return
    key = f"{ref.get('namespace')}/{ref.get('name')}"
    if claims.get(key) == wanted:
        return
    problem = f"has uid {claims[key]}" if key in claims else "is not in the input"
    message = (
        f"names a claim that is not imported with it: {CLAIM} {key} {problem}, and the volume would be reclaimed; "
        "add the claims of the same dump (kubectl get pv,pvc -A -o yaml), "
        "or leave the uid out to reserve it by name"
    )
    yield Defect(("spec", "claimRef", "uid"), message, str(wanted))


def claim_uids(objects: Iterable[tuple[Kind, str, Manifest]]) -> dict[str, str]:
    return {key: uid(manifest) for kind, key, manifest in objects if kind.name == CLAIM}
