"""The admission chain of every write: its checks, and their order."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from volsched.kube.field_sets import UntypedError
from volsched.kube.kinds import KINDS, Kind
from volsched.kube.known_fields import type_of
from volsched.kube.meta import BETA_STORAGE_CLASS, without_bookkeeping
from volsched.kube.patches import merged
from volsched.kube.pod_defaults import with_kept_pull_policies
from volsched.kube.problems import Defect
from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.server_side_apply import (
    ApplyConflictError,
    FieldOwner,
    applied_fields,
    created_fields,
    managed_fields,
)
from volsched.kube.storage import StorageClass
from volsched.kube.validation.fields import fields_at, number_at, quantity_of, text_at
from volsched.kube.validation.rules import PREEMPTS, SYSTEM_PRIORITIES
from volsched.kube.workloads import Node
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, States, living
from volsched.log.events.streams import stream_of
from volsched.objects.rules.field_check import refuse_fields, refuse_types
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.object_events import (
    FieldsOwnedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UntypedPatchError,
)
from volsched.scheduling.rules.pod_claims import default_class
from volsched.workloads.rules.repairs import ZonalUpgrade, admission_streams, admit, asks_for_nodes

# Missing or terminating namespaces, undefined priorities, volumes of unknown claims, and claims that grow. The
# chain below defines which check applies to which kind, and in which order.

Manifest = Mapping[str, Any]

NAMESPACE = "Namespace"
POD = "Pod"
VOLUME = "PersistentVolume"
CLAIM = "PersistentVolumeClaim"
PRIORITY_CLASS = "PriorityClass"
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Namespaces that an API server creates itself when it starts."""
IMMORTAL_NAMESPACES = ("default", "kube-public", "kube-system")
_CANNOT_GROW = (
    "only dynamically provisioned pvc can be resized "
    "and the storageclass that provisions the pvc must support resize"
)
_CANNOT_GROW_YET = (
    "volume expansion is not supported yet; create a larger claim and copy the data, or keep the size that it has"
)


class NoNamespaceError(NotFoundError):
    """The missing object is the namespace of the one to be created."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f'namespaces "{namespace}" not found')
        self.namespace = namespace


class TerminatingError(ForbiddenError):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"unable to create new content in namespace {namespace} because it is being terminated")
        self.namespace = namespace


def namespace_stream(namespace: str) -> str:
    return stream_of(NAMESPACE, namespace)


def refuse_namespace(namespace: str, states: States) -> None:
    """Refuses creation in a missing or terminating namespace. System namespaces count as existing."""
    if _living(states.get(namespace_stream(namespace))) is None and namespace not in SYSTEM_NAMESPACES:
        raise NoNamespaceError(namespace)
    refuse_terminating_namespace(namespace, states)


def refuse_terminating_namespace(namespace: str, states: States) -> None:
    manifest = _living(states.get(namespace_stream(namespace)))
    if manifest is None:
        return
    terminating = text_at(fields_at(manifest, "status"), "phase") == "Terminating"
    if terminating or fields_at(manifest, "metadata").get("deletionTimestamp"):
        raise TerminatingError(namespace)


def refuse_immortal_namespace(kind: str, key: str) -> None:
    if kind == NAMESPACE and key in IMMORTAL_NAMESPACES:
        raise ForbiddenError("this namespace may not be deleted")


def claim_uid(kind: str, manifest: Manifest) -> str | None:
    """The uid of the claim in a volume's claimRef."""
    ref = fields_at(manifest, "spec", "claimRef") if kind == VOLUME else {}
    return text_at(ref, "uid") or None


def refuse_unknown_claim(kind: str, manifest: Manifest) -> None:
    """A claimRef with a uid names a claim of another store; here its volume would be released and reclaimed."""
    uid = claim_uid(kind, manifest)
    if uid:
        message = (
            "names a claim that this store has never seen; leave the uid out to reserve the volume by name, or "
            "import a whole dump with volsched import"
        )
        raise InvalidError(
            f'PersistentVolume "{manifest["metadata"]["name"]}"',
            [Defect(("spec", "claimRef", "uid"), message, uid)],
        )


def priority_streams(kind: str, manifest: Manifest) -> tuple[str, ...]:
    """The streams that a pod's priority depends on."""
    name = _priority_class(kind, manifest)
    if name is None or name in SYSTEM_PRIORITIES or PRIORITY_CLASS not in KINDS:
        return ()
    return (stream_of(PRIORITY_CLASS, name),)


def refuse_priority(kind: str, manifest: Manifest, states: States) -> None:
    """A pod has the priority and preemption policy of its class, which must exist; without a class, priority 0."""
    if kind != POD:
        return
    spec = fields_at(manifest, "spec")
    given, given_policy = number_at(spec, "priority"), text_at(spec, "preemptionPolicy")
    priority = _priority(manifest, states)
    if given is not None and given != priority.value:
        raise ForbiddenError(
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {priority.value} from the given PriorityClass name"
        )
    if given_policy and given_policy != priority.policy:
        raise ForbiddenError(
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
            f"admission controller computed {priority.policy} from the given PriorityClass name"
        )


def with_priority(event: NewEvent, kind: str, manifest: Manifest, states: States) -> NewEvent:
    """The creation of a pod, with the priority of the class that it names."""
    if kind != POD:
        return event
    priority = _priority(manifest, states)
    given = {"spec": {"priority": priority.value, "preemptionPolicy": priority.policy}}
    return replace(event, data={**event.data, "patch": merged(event.data["patch"], given)})


class _Priority(NamedTuple):
    value: int
    policy: str = PREEMPTS


def _priority(pod: Manifest, states: States) -> _Priority:
    name = _priority_class(POD, pod)
    if name is None:
        return _Priority(0)
    if name in SYSTEM_PRIORITIES:
        return _Priority(SYSTEM_PRIORITIES[name])
    for stream in priority_streams(POD, pod):
        class_ = _living(states.get(stream))
        if class_ is not None:
            return _Priority(number_at(class_, "value") or 0, text_at(class_, "preemptionPolicy") or PREEMPTS)
    raise ForbiddenError(f"no PriorityClass with name {name} was found")


def _priority_class(kind: str, manifest: Manifest) -> str | None:
    return (text_at(fields_at(manifest, "spec"), "priorityClassName") or None) if kind == POD else None


def lacks_class(kind: str, manifest: Manifest) -> bool:
    """Whether the object is a claim without a class name; an empty name means no class."""
    noted = BETA_STORAGE_CLASS in fields_at(manifest, "metadata", "annotations")
    return kind == CLAIM and not noted and fields_at(manifest, "spec").get("storageClassName") is None


def with_default_class(claim: Manifest, classes: Iterable[StorageClass]) -> Manifest:
    """The claim, which lacks a class, with the present default class. Without one, the volume controller sets the
    class as soon as there is a default."""
    default = default_class(classes)
    if default is None or not isinstance(claim.get("spec"), Mapping):
        return claim
    return {**claim, "spec": {**claim["spec"], "storageClassName": default.name}}


def refuse_expansion(claim: State | None, patch: Manifest, storage_class: Manifest | None) -> None:
    """Checks a claim's change to a larger request; `storage_class` is its own, if there is one."""
    before = _living(claim)
    wanted = quantity_of(fields_at(patch, "spec", "resources", "requests").get("storage"))
    if before is None or wanted is None or wanted <= _size(before):
        return
    if storage_class is None or storage_class.get("allowVolumeExpansion") is not True:
        raise ForbiddenError(_CANNOT_GROW)
    raise ForbiddenError(_CANNOT_GROW_YET)


def class_of_claim(claim: Manifest) -> str:
    noted = fields_at(claim, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    return noted if isinstance(noted, str) else text_at(fields_at(claim, "spec"), "storageClassName")


def _size(claim: Manifest) -> Quantity:
    return quantity_of(fields_at(claim, "spec", "resources", "requests").get("storage")) or ZERO


def _living(state: State | None) -> Manifest | None:
    return state.manifest if isinstance(state, ObjectState) else None


# The admission chain of every write of an object.
#
# Creation: field check, namespace, priority, claimRef uid, defaults, validation, zonal labels. Change: field
# check, the rules of updates, expansion. The writer is data (`Origin`), and so are the objects read
# beforehand (`AdmissionContext`).


class Origin(StrEnum):
    """The kind of writer."""

    PERSON = "person"
    """A manifest from a file or a program. The field check is strict; the reader of the file creates a missing
    namespace first and reports it."""
    API = "api"
    """An HTTP request. It chooses the strictness of the field check, which ran before, by the same rule."""
    CONTROLLER = "controller"
    """A controller's new object is checked like a person's manifest, except for unknown fields: it copies them
    from objects that a newer program or a lenient request stored. A controller may change fields that people may
    not, and a change is checked without the object's surroundings."""


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """Objects that are read before a write, beyond the streams of the command."""

    nodes: Collection[Node] | None = None
    """The nodes that a volume's zone labels may refer to; None: the labels are not converted."""
    claim_known: bool = True
    """Whether the claim whose uid a volume names exists here, or existed once."""
    storage_class: Manifest | None = None
    """The class of a changed claim: it allows or forbids expansion."""
    classes: Collection[StorageClass] = ()
    """The classes among which the default is found for a claim that names none."""


NO_CONTEXT = AdmissionContext()


class AdmittedWrite(NamedTuple):
    event: NewEvent | None
    """The object's own event, if it changes."""
    beside: tuple[NewEvent, ...] = ()
    upgrade: ZonalUpgrade | None = None
    """The result of converting a new volume's zone labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    kind: Kind
    key: str
    manifest: Manifest
    uid: str
    now: str
    origin: Origin
    around: AdmissionContext = NO_CONTEXT
    status: Manifest | None = None
    """The initial status from a controller; any other writer's status is dropped."""
    by: FieldOwner | None = None
    """The writer, for an existing object whose fields have owners."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read or written besides the object's."""
        zonal = () if self.around.nodes is None else admission_streams(self.kind.name, self.key, self.uid)
        return (*zonal, *priority_streams(self.kind.name, self.manifest), *self._namespace_streams)

    @property
    def _namespace_streams(self) -> tuple[str, ...]:
        return (namespace_stream(self.key.partition("/")[0]),) if self.kind.namespaced else ()

    def admit(self, states: States) -> AdmittedWrite:
        kind = self.kind.name
        if self.origin is not Origin.API:
            check = refuse_types if self.origin is Origin.CONTROLLER else refuse_fields
            check(self.kind, self.manifest)
        for stream in self._namespace_streams:
            refuse = refuse_namespace if self.origin is Origin.API else refuse_terminating_namespace
            refuse(stream.partition("/")[2], states)
        refuse_priority(kind, self.manifest, states)
        if not self.around.claim_known:
            refuse_unknown_claim(kind, self.manifest)
        state = states.get(stream_of(kind, self.key))
        classes = self.around.classes
        given = with_default_class(self.manifest, classes) if classes else self.manifest
        event = create_object(state, self.kind, given, uid=self.uid, now=self.now)
        event = with_priority(event, kind, self.manifest, states)
        if self.status is not None:
            event = replace(event, data={"patch": {**event.data["patch"], "status": self.status}})
        if self.around.nodes is None or not asks_for_nodes(kind, self.manifest):
            return AdmittedWrite(event)
        upgrade, (event, *notices) = admit(event, self.around.nodes, now=self.now)
        return AdmittedWrite(event, tuple(notices), upgrade)


def admit_change(
    state: State | None,
    kind: Kind,
    manifest: Manifest,
    *,
    origin: Origin,
    status: bool = False,
    same_uid: bool = True,
    around: AdmissionContext = NO_CONTEXT,
    by: FieldOwner | None = None,
    owners: Sequence[FieldOwner] | None = None,
) -> AdmittedWrite:
    """Replace the object; `status`, `same_uid`, `by`, `owners`: as in `update_object`."""
    trusted = origin is Origin.CONTROLLER
    if origin is Origin.PERSON:
        refuse_fields(kind, manifest, state.manifest if isinstance(state, ObjectState) else None)
    event = update_object(
        state, kind, manifest, status=status, by_volume_controller=trusted, same_uid=same_uid, by=by, owners=owners
    )
    if kind.name == CLAIM and not status and not trusted and event is not None:
        refuse_expansion(state, event.data.get("patch", {}), around.storage_class)
    return AdmittedWrite(event)


def admit_applied(creation: Creation, states: States) -> AdmittedWrite:
    """Create the object if it does not exist, else apply the manifest to it.

    Fields that the manifest does not name keep their values; its lists replace the object's. Status belongs to the
    controllers and is left alone.
    """
    state = living(states, stream_of(creation.kind.name, creation.key))
    if state is None or state.manifest is None:
        return creation.admit(states)
    manifest = creation.manifest
    named = {**without_bookkeeping(manifest["metadata"]), "resourceVersion": None}
    if not named.get("uid"):
        named.pop("uid", None)
    kept = {"status": state.manifest["status"]} if "status" in state.manifest else {}
    new = {**merged(state.manifest, {**manifest, "status": None, "metadata": named}), **kept}
    if creation.kind.name == POD and isinstance(new.get("spec"), dict):
        new["spec"] = with_kept_pull_policies(fields_at(state.manifest, "spec"), new["spec"])
    return admit_change(state, creation.kind, new, origin=creation.origin, around=creation.around, by=creation.by)


def admit_server_side(creation: Creation, states: States, *, force: bool, status: bool) -> AdmittedWrite:
    """Server-side apply: the manifest's fields become those of `creation.by`; other fields keep their owners."""
    kind, by, config = creation.kind, creation.by, creation.manifest
    assert by is not None
    state = living(states, stream_of(kind.name, creation.key))
    try:
        if state is not None and state.manifest is not None:
            applied = applied_fields(state.manifest, config, type_of(kind), by, force=force)
            return admit_change(
                state, kind, applied.manifest, origin=creation.origin, status=status, same_uid=False,
                around=creation.around, owners=applied.owners,
            )  # fmt: skip
        if status:
            raise NotFoundError(f'{kind.name} "{creation.key}" not found')
        owners = created_fields(config, type_of(kind), by)
    except ApplyConflictError as error:
        raise FieldsOwnedError(error) from None
    except UntypedError as error:
        raise UntypedPatchError(kind, config, str(error)) from None
    admitted = creation.admit(states)
    assert admitted.event is not None
    patch = merged(admitted.event.data["patch"], {"metadata": {"managedFields": managed_fields(owners)}})
    return admitted._replace(event=replace(admitted.event, data={**admitted.event.data, "patch": patch}))


def admit_deletion(
    state: State | None,
    kind: Kind,
    key: str,
    *,
    now: str,
    uid: str | None = None,
    rv: str | None = None,
    grace: int | None = 0,
    finalizer: str | None = None,
) -> AdmittedWrite:
    """`uid`, `rv`, `grace` and `finalizer`: as in `delete_object`."""
    refuse_immortal_namespace(kind.name, key)
    event = delete_object(state, kind, key, now=now, uid=uid, rv=rv, grace=grace, finalizer=finalizer)
    return AdmittedWrite(event)
