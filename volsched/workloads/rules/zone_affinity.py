"""Zonal upgrade: the zone and region labels of a volume as the node affinity that says the same.

Written once and immutable afterwards, the affinity must not shut out a labelled node that the labels admit.
VolumeZone goes on enforcing the labels, which stay.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from volsched.kube.meta import LEGACY_ZONE, TOPOLOGY_LABELS, ZONE
from volsched.kube.names import label_value_problem
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.volume_zone import GA_TWIN, zone_parts

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
    """What to write as the volume's required node affinity; set if converted."""
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
    """None for a label that VolumeZone ignores, or whose values would make the selector malformed."""
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
    """Of a legacy and a GA label that say the same, keep the one that nodes carry."""
    dropped = set()
    for legacy, twin in GA_TWIN.items():
        if legacy in wanted and twin in wanted and not _twins_differ(legacy, wanted):
            dropped.add(legacy if any(twin in node.labels for node in nodes) else twin)
    return {key: values for key, values in wanted.items() if key not in dropped}


def _terms(wanted: _Expressions, nodes: Collection[Node]) -> tuple[NodeTerm, ...]:
    """One term for each way in which nodes spell these labels; the labels as they are if no node has any.

    Two fixed terms, all legacy and all GA, were rejected: a node with one label of either generation would match
    neither, though VolumeZone admits it.
    """
    as_labelled = tuple(wanted)
    relevant = {*wanted, *(GA_TWIN[key] for key in wanted if key in GA_TWIN)}
    spellings = {_spelling(wanted, node.labels) for node in nodes if not relevant.isdisjoint(node.labels)}
    # By position in TOPOLOGY_LABELS, legacy comes first, whatever the order of the nodes.
    ordered = sorted(spellings or {as_labelled}, key=lambda keys: [TOPOLOGY_LABELS.index(key) for key in keys])
    return tuple(
        NodeTerm(tuple(Requirement(key, "In", values) for key, values in zip(keys, wanted.values(), strict=True)))
        for keys in ordered
    )


def _spelling(wanted: _Expressions, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The key under which VolumeZone would read each label on this node.

    Where the node has neither key it cannot be admitted now; its other labels tell how it would spell this one.
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
