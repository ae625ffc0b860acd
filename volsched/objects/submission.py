"""What people give us: manifests to be applied, created, deleted, or taken over from another cluster.

Each object is a command of its own, so that one that is refused keeps no other back; only an import is all or
nothing. Who did it and why is kept with the event.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import uuid4

from volsched.kube.kinds import Kind
from volsched.kube.manifest_reader import Loaded
from volsched.kube.problems import ManifestError, Problem
from volsched.kube.workloads import Node
from volsched.log.commands import Command, Outcome, Precondition, Scan
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.decision import Decision
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.objects.door import apply, create, delete
from volsched.objects.object_write import Author, ObjectWrite
from volsched.objects.rules.admission_chain import NO_CONTEXT, AdmissionContext, Origin
from volsched.objects.rules.adoption import adopted, claim_uids, unresolved
from volsched.objects.surroundings import Subject, read_surroundings
from volsched.runtime.clock import Clock, rfc3339
from volsched.workloads.rules.zonal_upgrade import ZonalReport

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
        around = self._surroundings(loaded, verb)
        for start in range(0, len(loaded), BATCH):
            part = loaded[start : start + BATCH]
            writes = [
                self._write(entry, verb, near)
                for entry, near in zip(part, around[start : start + BATCH], strict=True)
            ]
            outcomes = self._carry_out(writes)
            for entry, write, outcome in zip(part, writes, outcomes, strict=True):
                upgrade = write.admitted.upgrade
                if report is not None and upgrade is not None and not isinstance(outcome, Exception):
                    report.count(upgrade)
                yield entry, outcome

    def delete(self, targets: Sequence[Target]) -> list[Outcome]:
        author = self._author()
        return self._carry_out([delete(target.kind.name, target.key, author) for target in targets])

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

    def _author(self) -> Author:
        return Author(self.actor, rfc3339(self.clock()), Origin.PERSON, self.reason)

    def _carry_out(self, writes: Sequence[ObjectWrite]) -> list[Outcome]:
        return execute(self.database, [write.command for write in writes], now=self.clock())

    def _write(self, entry: Loaded, verb: Verb, around: AdmissionContext) -> ObjectWrite:
        kind, author = entry.kind.name, self._author()
        if verb is Verb.DELETE:
            return delete(kind, entry.key, author)
        make = apply if verb is Verb.APPLY else create
        return make(kind, entry.manifest, author, uid=str(uuid4()), around=around)

    def _surroundings(self, loaded: Sequence[Loaded], verb: Verb) -> list[AdmissionContext]:
        """Nodes of the input count wherever they stand in it."""
        if verb is Verb.DELETE:
            return [NO_CONTEXT] * len(loaded)
        subjects = [Subject(it.kind.name, it.key, it.manifest, changes=verb is Verb.APPLY) for it in loaded]
        nodes = [entry.value for entry in loaded if isinstance(entry.value, Node)]
        return read_surroundings(self.database, subjects, zonal_upgrade=self.zonal_upgrade, more_nodes=nodes)

    def _reasoned(self, event: NewEvent) -> NewEvent:
        return event if self.reason is None else replace(event, data={**event.data, "reason": self.reason})


def _somebody_wrote(event: Event) -> str:
    return f"{event.actor} wrote {event.stream}: the store is no longer empty"
