"""Carrying the zonal upgrade out: what is written of a volume whose labels are converted, and how it is reported.

When a volume is made, and whenever it changes, the same rule (`core.zonal`) is asked. That it was converted is
said in a notice at a place of its own: an affinity with that notice is ours, any other one was there before.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, metadata, spec, uid
from volsched.kube.meta import TOPOLOGY_LABELS, Metadata
from volsched.kube.selectors import NodeSelector
from volsched.kube.storage import Volume
from volsched.kube.workloads import Node
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.object_states import manifest_of
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.workloads.rules.zone_affinity import (
    CONFLICT_REASON,
    INVALID_LABEL_REASON,
    SKIPPED_REASON,
    NoticeType,
    ZonalEvent,
    ZonalOutcome,
    ZonalUpgrade,
    upgrade_zonal,
)

VOLUME = "PersistentVolume"
UPGRADED_REASON = "ZonalUpgraded"
COMPONENT = "zonal-upgrade"
NOTHING_TO_DO = ZonalUpgrade(outcome=ZonalOutcome.UNCHANGED)


@dataclass(slots=True)
class ZonalReport:
    """How many volumes came out how; `conflicting` ones are among the converted."""

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
    """Would the labels be converted? Only then does anybody have to look up how nodes are labelled."""
    return kind == VOLUME and has_zone_labels(manifest) and spec(manifest).get("nodeAffinity") is None


def labelled_node(manifest: Manifest) -> Node:
    """A node as far as its name and labels go: thousands are asked for, and nothing else of them is."""
    named = metadata(manifest)
    return Node(meta=Metadata(name=str(named.get("name", "")), labels=named.get("labels") or {}))


def admission_streams(kind: str, key: str, uid: str) -> tuple[str, ...]:
    """What may be written beside an object that is made."""
    return (
        tuple(_place(key, uid, reason) for reason in (UPGRADED_REASON, CONFLICT_REASON)) if kind == VOLUME else ()
    )


def admit(created: NewEvent, nodes: Collection[Node], *, now: str) -> tuple[ZonalUpgrade, tuple[NewEvent, ...]]:
    """A volume about to be made, with its affinity; and the notices that go with it."""
    manifest = created.data["patch"]
    upgrade = upgrade_zonal(_read(manifest), nodes)
    if upgrade.affinity is None:
        # What is wrong with its labels, the controller says: it looks at every volume.
        return upgrade, (created,)
    patch = {**manifest, "spec": {**spec(manifest), **_affinity(upgrade.affinity)}}
    made = NewEvent(stream=created.stream, type=created.type, data={"patch": patch})
    return upgrade, (made, *_notices(manifest, upgrade, {}, now))


def convert(
    stream: str, states: States, nodes: Collection[Node], *, now: str
) -> tuple[ZonalUpgrade, tuple[NewEvent, ...]]:
    """What is written of a volume that exists: its affinity, or why it gets none. Asked again it is nothing."""
    manifest = manifest_of(states, stream)
    if manifest is None or is_settled(stream, states):
        return NOTHING_TO_DO, ()
    upgrade = upgrade_zonal(_read(manifest), nodes)
    notices = tuple(_notices(manifest, upgrade, states, now))
    if upgrade.affinity is None:
        return upgrade, notices
    patch = {"spec": _affinity(upgrade.affinity)}
    return upgrade, (NewEvent(stream=stream, type="VolumeChanged", data={"patch": patch}), *notices)


def is_settled(stream: str, states: States) -> bool:
    """Most volumes, most of the time: gone, converted by us, or known to have an affinity of their own."""
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
    """Where a notice is kept: in one place whatever its words, except that every invalid label is named."""
    return notice_stream(VOLUME, key, uid, reason, message if reason == INVALID_LABEL_REASON else reason)


def _converted(upgrade: ZonalUpgrade) -> ZonalEvent:
    message = "its zone and region labels were made its node affinity; the labels stay"
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
