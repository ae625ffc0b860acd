"""The one admission chain: what every write of an object goes through, whoever writes.

Creation: field check, namespace, priority, claimRef uid, defaults, validation, zonal labels. Change: field check,
the rules of updates, expansion. Who writes is data (`Origin`), and so is what was looked up (`AdmissionContext`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from volsched.kube.kinds import Kind
from volsched.kube.merge_patch import merged
from volsched.kube.meta import without_bookkeeping
from volsched.kube.storage import StorageClass
from volsched.kube.workloads import Node
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.object_states import living
from volsched.log.events.streams import stream_of
from volsched.objects.rules.admission import (
    CLAIM,
    namespace_stream,
    priority_streams,
    refuse_expansion,
    refuse_immortal_namespace,
    refuse_namespace,
    refuse_priority,
    refuse_terminating_namespace,
    refuse_unknown_claim,
    with_default_class,
    with_priority,
)
from volsched.objects.rules.field_check import refuse_fields
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.workloads.rules.zonal_upgrade import admission_streams, admit, asks_for_nodes
from volsched.workloads.rules.zone_affinity import ZonalUpgrade

Manifest = Mapping[str, Any]


class Origin(StrEnum):
    """Where a write comes from."""

    PERSON = "person"
    """A manifest of a file or a program. The field check is strict; a namespace that is missing is the business of
    whoever reads the file, who makes it first and says so."""
    API = "api"
    """A request. How strict the field check is, the request says, so it was made before, by the same rule."""
    CONTROLLER = "controller"
    """What a controller makes of objects that were admitted: it may change what people may not, and nothing but
    the object itself is asked about."""


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """What has to be looked up before an object is written, beyond the streams of the command."""

    nodes: Collection[Node] | None = None
    """Those that a volume's zone labels may mean; None: nothing is made of the labels."""
    claim_known: bool = True
    """The claim whose uid a volume names lives here, or lived here once."""
    storage_class: Manifest | None = None
    """That of a claim which is changed: whether it may grow is said there."""
    classes: Collection[StorageClass] = ()
    """Among which a claim that names none finds the default."""


NO_CONTEXT = AdmissionContext()


class AdmittedWrite(NamedTuple):
    event: NewEvent | None
    """The object's own, if it changes."""
    beside: tuple[NewEvent, ...] = ()
    upgrade: ZonalUpgrade | None = None
    """What was made of a new volume's zone labels."""


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
    """What a controller knows of the object from its beginning; anybody else's status is dropped."""

    @property
    def streams(self) -> tuple[str, ...]:
        """What is read or written beside the object."""
        zonal = () if self.around.nodes is None else admission_streams(self.kind.name, self.key, self.uid)
        return (*zonal, *priority_streams(self.kind.name, self.manifest), *self._namespace_streams)

    @property
    def _namespace_streams(self) -> tuple[str, ...]:
        asks = self.kind.namespaced and self.origin is not Origin.CONTROLLER
        return (namespace_stream(self.key.partition("/")[0]),) if asks else ()

    def admit(self, states: States) -> AdmittedWrite:
        kind = self.kind.name
        if self.origin is Origin.PERSON:
            refuse_fields(self.kind, self.manifest)
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
) -> AdmittedWrite:
    """The whole object as it should be; `status`, `same_uid`: as in `update_object`."""
    trusted = origin is Origin.CONTROLLER
    if origin is Origin.PERSON:
        refuse_fields(kind, manifest, state.manifest if isinstance(state, ObjectState) else None)
    event = update_object(state, kind, manifest, status=status, by_volume_controller=trusted, same_uid=same_uid)
    if kind.name == CLAIM and not status and not trusted and event is not None:
        refuse_expansion(state, event.data.get("patch", {}), around.storage_class)
    return AdmittedWrite(event)


def admit_applied(creation: Creation, states: States) -> AdmittedWrite:
    """Make the object if it is not there, else bring it to what the manifest says of it.

    Fields that the manifest does not name keep what they are; its lists replace the object's. Status is the
    controllers' business and is left alone.
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
    return admit_change(state, creation.kind, new, origin=creation.origin, around=creation.around)


def admit_deletion(
    state: State | None,
    kind: Kind,
    key: str,
    *,
    origin: Origin,
    now: str,
    uid: str | None = None,
    rv: str | None = None,
    grace: int | None = 0,
) -> AdmittedWrite:
    """`uid`, `rv` and `grace`: as in `delete_object`."""
    if origin is not Origin.CONTROLLER:
        refuse_immortal_namespace(kind.name, key)
    return AdmittedWrite(delete_object(state, kind, key, now=now, uid=uid, rv=rv, grace=grace))
