"""What people give us: manifests to be applied, created, deleted, or taken over from another cluster.

Each object is a command of its own, so that one that is refused keeps no other back; only an import is all or
nothing. Who did it and why is kept with the event.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import uuid4

from volsched.kube.kinds import Kind, Manifest
from volsched.kube.manifest_reader import Loaded
from volsched.kube.problems import ManifestError, Problem
from volsched.kube.workloads import Node
from volsched.log.batch import load_states
from volsched.log.commands import Command, Outcome, Precondition, Scan
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import stream_of
from volsched.log.reads.startup import load_nodes
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.objects.rules.admission import (
    CLAIM,
    class_of_claim,
    priority_streams,
    refuse_expansion,
    refuse_priority,
    with_priority,
)
from volsched.objects.rules.adoption import adopted, claim_uids, unresolved
from volsched.objects.rules.apply import Applied, apply_object, refuse_unknown_claim
from volsched.objects.rules.lifecycle import create_object, delete_object
from volsched.runtime.clock import Clock, rfc3339
from volsched.workloads.rules.zonal_upgrade import ZonalReport, admission_streams, admit, asks_for_nodes
from volsched.workloads.rules.zone_affinity import ZonalUpgrade

BATCH = 500


class Verb(StrEnum):
    APPLY = "apply"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Target:
    """An object that is named, not described."""

    kind: Kind
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitter:
    """Who gives us objects, and why."""

    database: Database
    clock: Clock
    actor: str
    reason: str | None = None
    zonal_upgrade: bool = True
    """Whether zone and region labels of new volumes are made their node affinity."""

    def submit(
        self, loaded: Sequence[Loaded], verb: Verb, *, report: ZonalReport | None = None
    ) -> Iterator[tuple[Loaded, Outcome]]:
        """What became of each object, in order. `report` counts what the zonal upgrade made of new volumes."""
        nodes = None if verb is Verb.DELETE else self._nodes(loaded)
        classes = self._classes(loaded) if verb is Verb.APPLY else {}
        for start in range(0, len(loaded), BATCH):
            part = loaded[start : start + BATCH]
            upgrades: dict[str, ZonalUpgrade] = {}
            commands = [self._command(entry, verb, nodes, upgrades, classes) for entry in part]
            outcomes = execute(self.database, commands, now=self.clock())
            for entry, outcome in zip(part, outcomes, strict=True):
                upgrade = upgrades.get(stream_of(entry.kind.name, entry.key))
                if report is not None and upgrade is not None and not isinstance(outcome, Exception):
                    report.count(upgrade)
                yield entry, outcome

    def delete(self, targets: Sequence[Target]) -> list[Outcome]:
        commands = [self._deleting(target.kind, target.key) for target in targets]
        return execute(self.database, commands, now=self.clock())

    def adopt(self, loaded: Sequence[Loaded]) -> Outcome:
        """All of another cluster's objects into an empty store, or nothing of it."""
        claims = claim_uids((entry.kind, entry.key, entry.manifest) for entry in loaded)
        problems = [
            Problem(entry.place, f'{entry.kind.name} "{entry.key}"', defect)
            for entry in loaded
            for defect in unresolved(entry.kind, entry.manifest, claims)
        ]
        if problems:
            raise ManifestError(problems)
        with self.database.read() as connection:
            position = read_head(connection).position
        if position:
            raise StoreError(
                f"the store has {position} events already, and a cluster is taken over as a whole; give an empty "
                "one: volsched migrate --db NEW && volsched import --db NEW -f DUMP"
            )
        now = rfc3339(self.clock())
        events = tuple(
            self._reasoned(adopted(it.kind, it.key, it.manifest, uid=str(uuid4()), now=now)) for it in loaded
        )
        command = Command(
            actor=self.actor,
            streams=tuple(event.stream for event in events),
            decide=lambda _: Decision(events=events),
            precondition=Precondition(scan=Scan(0, _somebody_wrote)),
        )
        (outcome,) = execute(self.database, [command], now=self.clock())
        return outcome

    def _command(
        self,
        entry: Loaded,
        verb: Verb,
        nodes: Collection[Node] | None,
        upgrades: dict[str, ZonalUpgrade],
        classes: Mapping[str, Manifest],
    ) -> Command:
        if verb is Verb.DELETE:
            return self._deleting(entry.kind, entry.key)
        make = _applied if verb is Verb.APPLY else _created
        return self._writing(entry, make, nodes, upgrades, classes)

    def _writing(
        self,
        entry: Loaded,
        make: "_Make",
        nodes: Collection[Node] | None,
        upgrades: dict[str, ZonalUpgrade],
        classes: Mapping[str, Manifest],
    ) -> Command:
        """`upgrades` takes what the zonal upgrade made of a new volume, by its stream."""
        stream = stream_of(entry.kind.name, entry.key)
        uid, now = str(uuid4()), rfc3339(self.clock())

        def decide(states: States) -> Decision:
            event, applied = make(states.get(stream), entry, uid, now)
            if applied is Applied.CREATED and event is not None:
                refuse_priority(entry.kind.name, entry.manifest, states)
                event = with_priority(event, entry.kind.name, entry.manifest, states)
            elif event is not None and entry.kind.name == CLAIM:
                refuse_expansion(states.get(stream), event.data.get("patch", {}), classes.get(entry.key))
            result = {"applied": applied.value}
            if event is None:
                return Decision(result=result)
            notices: list[NewEvent] = []
            if (
                applied is Applied.CREATED
                and nodes is not None
                and asks_for_nodes(entry.kind.name, entry.manifest)
            ):
                upgrades[stream], (event, *notices) = admit(event, nodes, now=now)
            return Decision(events=(self._reasoned(event), *notices), result=result)

        streams = (
            stream,
            *admission_streams(entry.kind.name, entry.key, uid),
            *priority_streams(entry.kind.name, entry.manifest),
        )
        return Command(actor=self.actor, streams=streams, decide=decide)

    def _deleting(self, kind: Kind, key: str) -> Command:
        stream, now = stream_of(kind.name, key), rfc3339(self.clock())

        def decide(states: States) -> Decision:
            event = delete_object(states.get(stream), kind, key, now=now)
            gone = event is not None and event.type.endswith("Deleted")
            return Decision(events=() if event is None else (self._reasoned(event),), result={"gone": gone})

        return Command(actor=self.actor, streams=(stream,), decide=decide)

    def _reasoned(self, event: NewEvent) -> NewEvent:
        return event if self.reason is None else replace(event, data={**event.data, "reason": self.reason})

    def _classes(self, loaded: Sequence[Loaded]) -> Mapping[str, Manifest]:
        """The classes of the claims that are there already: whether these may grow is said there."""
        streams = {stream_of(CLAIM, entry.key): entry.key for entry in loaded if entry.kind.name == CLAIM}
        if not streams:
            return {}
        with self.database.read() as connection:
            claims, _ = load_states(self.database, connection, list(streams))
            named = {
                streams[stream]: stream_of("StorageClass", class_of_claim(it.manifest))
                for stream, it in claims.items()
                if isinstance(it, ObjectState) and it.manifest
            }
            classes, _ = load_states(self.database, connection, list(dict.fromkeys(named.values())))
        return {
            key: it.manifest
            for key, stream in named.items()
            if isinstance(it := classes.get(stream), ObjectState) and it.manifest
        }

    def _nodes(self, loaded: Sequence[Loaded]) -> list[Node] | None:
        """Those in the store and those of the input, wherever they stand in it; None where none are asked for."""
        if not self.zonal_upgrade or not any(asks_for_nodes(it.kind.name, it.manifest) for it in loaded):
            return None
        with self.database.read() as connection:
            stored = load_nodes(connection)
        return stored + [entry.value for entry in loaded if isinstance(entry.value, Node)]


_Make = Callable[[State | None, Loaded, str, str], tuple[NewEvent | None, Applied]]


def _applied(state: State | None, entry: Loaded, uid: str, now: str) -> tuple[NewEvent | None, Applied]:
    return apply_object(state, entry.kind, entry.manifest, uid=uid, now=now)


def _created(state: State | None, entry: Loaded, uid: str, now: str) -> tuple[NewEvent | None, Applied]:
    refuse_unknown_claim(entry.kind, entry.manifest)
    return create_object(state, entry.kind, entry.manifest, uid=uid, now=now), Applied.CREATED


def _somebody_wrote(event: Event) -> str:
    return f"{event.actor} wrote {event.stream}: the store is no longer empty"
