"""The rules of repairs: the zonal upgrade of volumes, and promises to deleted nodes."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import (
    Manifest,
    annotations,
    is_being_deleted,
    metadata,
    names_claim,
    spec,
    uid,
)
from volsched.kube.meta import LEGACY_ZONE, ROLLBACK, TOPOLOGY_LABELS, ZONE, Metadata
from volsched.kube.names import label_value_problem
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import Volume
from volsched.kube.workloads import Node
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, States, manifest_of
from volsched.log.events.streams import ObjectLife
from volsched.objects.rules.object_events import changed_event, notice_event, notice_stream
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.view import parsed_claim
from volsched.scheduling.rules.pod_claims import selection_key
from volsched.scheduling.rules.volume_restrictions import GA_TWIN, zone_parts

# Zonal upgrade: converts the zone and region labels of a volume to the equivalent node affinity.
#
# The affinity is immutable, so it must not exclude a labelled node that the labels admit. VolumeZone continues
# to enforce the labels, which stay.

SKIPPED_REASON = "ZonalUpgradeSkipped"
INVALID_LABEL_REASON = "InvalidZoneLabel"
CONFLICT_REASON = "ConflictingZoneLabels"


class ZonalOutcome(StrEnum):
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    INVALID = "invalid"
    CONVERTED = "converted"


class NoticeType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ZonalEvent:
    type: NoticeType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonalUpgrade:
    outcome: ZonalOutcome
    affinity: NodeSelector | None = None
    """The volume's required node affinity to write; set if converted."""
    event: ZonalEvent | None = None
    unlabelled_nodes: int = 0
    """Nodes without any zone or region label: the labels admit them, the affinity does not."""


_Expressions = Mapping[str, tuple[str, ...]]
"""Accepted values by label, in the order of TOPOLOGY_LABELS."""


def upgrade_zonal(volume: Volume, nodes: Collection[Node]) -> ZonalUpgrade:
    labels = {key: volume.meta.labels[key] for key in TOPOLOGY_LABELS if key in volume.meta.labels}
    if not labels or volume.meta.being_deleted:
        return ZonalUpgrade(outcome=ZonalOutcome.UNCHANGED)
    if volume.node_affinity is not None:
        return ZonalUpgrade(outcome=ZonalOutcome.SKIPPED, event=_skipped(volume))
    wanted: dict[str, tuple[str, ...]] = {}
    for key, value in labels.items():
        values = _values(key, value)
        if values is None:
            return ZonalUpgrade(outcome=ZonalOutcome.INVALID, event=_invalid_label(volume, key, value))
        wanted[key] = values
    conflicts = [key for key in GA_TWIN if _twins_differ(key, wanted)]
    return ZonalUpgrade(
        outcome=ZonalOutcome.CONVERTED,
        affinity=NodeSelector(_terms(_without_equal_twins(wanted, nodes), nodes)),
        event=_conflicting(volume, conflicts[0]) if conflicts else None,
        unlabelled_nodes=sum(not any(key in node.labels for key in TOPOLOGY_LABELS) for node in nodes),
    )


def _values(key: str, value: str) -> tuple[str, ...] | None:
    """The label's values; None: VolumeZone ignores the label, or its values would make the selector malformed."""
    parts = zone_parts(value)
    if parts is None:
        return None
    # A volume is in one region: the separator has no meaning there.
    values = tuple(dict.fromkeys(parts)) if key in (LEGACY_ZONE, ZONE) else (value.strip(),)
    return None if any(label_value_problem(part) for part in values) else values


def _twins_differ(legacy: str, wanted: _Expressions) -> bool:
    twin = GA_TWIN[legacy]
    return legacy in wanted and twin in wanted and set(wanted[legacy]) != set(wanted[twin])


def _without_equal_twins(wanted: _Expressions, nodes: Collection[Node]) -> _Expressions:
    """Of a legacy and a GA label with equal values, keep the one that nodes carry."""
    dropped = set()
    for legacy, twin in GA_TWIN.items():
        if legacy in wanted and twin in wanted and not _twins_differ(legacy, wanted):
            dropped.add(legacy if any(twin in node.labels for node in nodes) else twin)
    return {key: values for key, values in wanted.items() if key not in dropped}


def _terms(wanted: _Expressions, nodes: Collection[Node]) -> tuple[NodeTerm, ...]:
    """One term for each set of keys that nodes use for these labels; the volume's own keys if no node has any.

    Two fixed terms, all legacy and all GA, were rejected: a node with one label of either generation would match
    neither, though VolumeZone admits it.
    """
    as_labelled = tuple(wanted)
    relevant = {*wanted, *(GA_TWIN[key] for key in wanted if key in GA_TWIN)}
    spellings = {_spelling(wanted, node.labels) for node in nodes if not relevant.isdisjoint(node.labels)}
    # By position in TOPOLOGY_LABELS, so legacy comes first, independent of the order of the nodes.
    ordered = sorted(spellings or {as_labelled}, key=lambda keys: [TOPOLOGY_LABELS.index(key) for key in keys])
    return tuple(
        NodeTerm(tuple(Requirement(key, "In", values) for key, values in zip(keys, wanted.values(), strict=True)))
        for keys in ordered
    )


def _spelling(wanted: _Expressions, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The key under which VolumeZone would read each label on this node.

    A node with neither key cannot be admitted now; its other labels show how it would spell this one.
    """
    speaks_legacy = any(key in labels for key in GA_TWIN)
    keys = []
    for key in wanted:
        twin = GA_TWIN.get(key, key)
        undecided = key not in labels and twin not in labels
        keys.append(key if key in labels or (undecided and speaks_legacy) else twin)
    return tuple(keys)


def _skipped(volume: Volume) -> ZonalEvent:
    return ZonalEvent(
        NoticeType.NORMAL,
        SKIPPED_REASON,
        f'volume "{volume.name}" already has a node affinity, which cannot be changed; '
        "its zone and region labels stay in force beside it",
    )


def _invalid_label(volume: Volume, key: str, value: str) -> ZonalEvent:
    return ZonalEvent(
        NoticeType.WARNING,
        INVALID_LABEL_REASON,
        f'volume "{volume.name}" was not given a node affinity: its label {key}="{value}" holds an empty or '
        "illegal value; correct the label and the upgrade is tried again",
    )


def _conflicting(volume: Volume, legacy: str) -> ZonalEvent:
    return ZonalEvent(
        NoticeType.WARNING,
        CONFLICT_REASON,
        f'volume "{volume.name}" has different values in the labels {legacy} and {GA_TWIN[legacy]}; '
        "only nodes that satisfy both can use it",
    )


# The zonal upgrade's writes to a volume whose labels are converted, and its report.
#
# The same rule (`upgrade_zonal`) runs when a volume is created and whenever it changes. A notice at a fixed stream
# records the conversion: an affinity with that notice is ours, any other existed before.

VOLUME = "PersistentVolume"
UPGRADED_REASON = "ZonalUpgraded"
COMPONENT = "zonal-upgrade"
NOTHING_TO_DO = ZonalUpgrade(outcome=ZonalOutcome.UNCHANGED)


@dataclass(slots=True)
class ZonalReport:
    """Number of volumes by outcome; `conflicting` ones are among the converted."""

    converted: int = 0
    conflicting: int = 0
    skipped: int = 0
    invalid: int = 0
    unlabelled_nodes: int = 0
    """Nodes without any zone or region label, which the labels admitted and the affinities now refuse."""

    def count(self, upgrade: ZonalUpgrade) -> None:
        self.converted += upgrade.outcome is ZonalOutcome.CONVERTED
        self.skipped += upgrade.outcome is ZonalOutcome.SKIPPED
        self.invalid += upgrade.outcome is ZonalOutcome.INVALID
        self.conflicting += upgrade.event is not None and upgrade.event.reason == CONFLICT_REASON
        self.unlabelled_nodes = max(self.unlabelled_nodes, upgrade.unlabelled_nodes)

    @property
    def empty(self) -> bool:
        return not (self.converted or self.skipped or self.invalid)

    def __str__(self) -> str:
        refused = f"; {self.unlabelled_nodes} nodes without zone labels can no longer use them"
        return (
            f"zonal upgrade: {self.converted} volumes converted ({self.conflicting} with conflicting labels), "
            f"{self.skipped} have an affinity already, {self.invalid} have an invalid label"
            + (refused if self.converted and self.unlabelled_nodes else "")
        )


def has_zone_labels(volume: Manifest) -> bool:
    labels = metadata(volume).get("labels")
    return labels is not None and not _ZONAL.isdisjoint(labels)


def asks_for_nodes(kind: str, manifest: Manifest) -> bool:
    """Whether the labels would be converted: only then are the nodes' labels needed."""
    return kind == VOLUME and has_zone_labels(manifest) and spec(manifest).get("nodeAffinity") is None


def labelled_node(manifest: Manifest) -> Node:
    """A node with only its name and labels: thousands are read, and no other fields are needed."""
    named = metadata(manifest)
    return Node(meta=Metadata(name=str(named.get("name", "")), labels=named.get("labels") or {}))


def admission_streams(kind: str, key: str, uid: str) -> tuple[str, ...]:
    """The streams that may be written together with a new object."""
    return (
        tuple(_place(key, uid, reason) for reason in (UPGRADED_REASON, CONFLICT_REASON)) if kind == VOLUME else ()
    )


def admit(created: NewEvent, nodes: Collection[Node], *, now: str) -> tuple[ZonalUpgrade, tuple[NewEvent, ...]]:
    """A volume about to be created, with its affinity, and its notices."""
    manifest = created.data["patch"]
    upgrade = upgrade_zonal(_read(manifest), nodes)
    if upgrade.affinity is None:
        # The controller examines every volume, and reports faulty labels.
        return upgrade, (created,)
    patch = {**manifest, "spec": {**spec(manifest), **_affinity(upgrade.affinity)}}
    upgraded = replace(created, data={**created.data, "patch": patch})
    return upgrade, (upgraded, *_notices(manifest, upgrade, {}, now))


def convert(
    stream: str, states: States, nodes: Collection[Node], *, now: str
) -> tuple[ZonalUpgrade, tuple[NewEvent, ...]]:
    """The writes to an existing volume: its affinity, or the notice why it gets none. Idempotent."""
    manifest = manifest_of(states, stream)
    if manifest is None or is_settled(stream, states):
        return NOTHING_TO_DO, ()
    upgrade = upgrade_zonal(_read(manifest), nodes)
    notices = tuple(_notices(manifest, upgrade, states, now))
    if upgrade.affinity is None:
        return upgrade, notices
    patch = {"spec": _affinity(upgrade.affinity)}
    return upgrade, (changed_event(stream, patch), *notices)


def is_settled(stream: str, states: States) -> bool:
    """Whether no upgrade is needed: the volume is deleted, converted by us, or had its own affinity."""
    manifest = manifest_of(states, stream)
    if manifest is None:
        return True
    key, id_ = str(metadata(manifest)["name"]), uid(manifest)
    has_affinity = spec(manifest).get("nodeAffinity") is not None
    return has_affinity and any(_place(key, id_, it) in states for it in (UPGRADED_REASON, SKIPPED_REASON))


def _notices(manifest: Manifest, upgrade: ZonalUpgrade, states: States, now: str) -> Iterator[NewEvent]:
    converted = () if upgrade.affinity is None else (_converted(upgrade),)
    for event in (*converted, *(() if upgrade.event is None else (upgrade.event,))):
        key, id_ = str(metadata(manifest)["name"]), uid(manifest)
        place = _place(key, id_, event.reason, event.message)
        if place not in states:
            yield notice_event(
                None, place, kind=VOLUME, key=key, uid=id_, type_=event.type.value, reason=event.reason,
                message=event.message, component=COMPONENT, now=now,
            )  # fmt: skip


def _place(key: str, uid: str, reason: str, message: str = "") -> str:
    """The stream of a notice: one per reason, whatever the message, but one per invalid label."""
    return notice_stream(VOLUME, key, uid, reason, message if reason == INVALID_LABEL_REASON else reason)


def _converted(upgrade: ZonalUpgrade) -> ZonalEvent:
    message = "its zone and region labels were converted to its node affinity; the labels stay"
    if upgrade.unlabelled_nodes:
        message += f"; {upgrade.unlabelled_nodes} nodes without such labels can no longer use it"
    return ZonalEvent(NoticeType.NORMAL, UPGRADED_REASON, message)


def _affinity(selector: NodeSelector) -> dict[str, Any]:
    terms = [
        {
            "matchExpressions": [
                {"key": part.key, "operator": part.operator, "values": list(part.values)}
                for part in term.match_expressions
            ]
        }
        for term in selector.node_selector_terms
    ]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def _read(manifest: Mapping[str, Any]) -> Volume:
    value = KINDS[VOLUME].read(manifest)
    assert isinstance(value, Volume)
    return value


_ZONAL = frozenset(TOPOLOGY_LABELS)


# Promises to deleted nodes: a claim's selected-node that can no longer be kept.
#
# Such a claim keeps its pod off every node. The annotation is removed, and the pod decided again, a minute after
# the node's deletion, if no volume was created for the claim and no open binding holds it. A node recreated under
# the same name is another node: a promise to the old one does not apply to it.

GONE_SECONDS = 60
REMOVED = "SelectedNodeRemoved"


def is_promised(claim: State | None) -> bool:
    """Whether a node is promised to the claim. Cheap: most claims have a volume, and this runs for each change."""
    return (
        isinstance(claim, ObjectState) and claim.manifest is not None and promised_node(claim.manifest) is not None
    )


def promised_node(claim: Manifest) -> str | None:
    """The node for which the claim's volume is to be created; None if no promise is open."""
    node = annotations(claim).get(selection_key(annotations(claim)))
    if node is None or spec(claim).get("volumeName") or is_being_deleted(claim) or ROLLBACK in annotations(claim):
        return None
    return str(node)


def gone_since(nodes: Iterable[ObjectLife], *, promised: int, promised_at: int) -> int | None:
    """When the promised node was deleted, in microseconds; None: it exists.

    `nodes` are all that had the name, the oldest first; `promised` and `promised_at` are position and time of the
    promise. If there never was such a node, it has been missing at least since the promise.
    """
    meant = [node for node in nodes if node.born < promised]
    return meant[-1].ended_at if meant else promised_at


def is_volume_for(volume: Manifest, claim: Manifest) -> bool:
    """Whether the volume is, or may become, the one that was promised to the claim."""
    own = metadata(claim)
    reserved = names_claim(volume, f"{own.get('namespace')}/{own.get('name')}", uid(claim))
    return reserved or metadata(volume).get("name") == volume_name(claim)


def volume_name(claim: Manifest) -> str:
    """The name of the volume that a provisioner creates for the claim."""
    return provisioned_name(parsed_claim(claim).value)


def removed(node: str) -> str:
    return (
        f'the node "{node}" that was selected for this claim is gone, and no volume was created there; '
        "the selection was removed, and the pods that wait for the claim are decided again"
    )
