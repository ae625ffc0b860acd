"""Objects that users submit: manifests to apply, create, delete or adopt, and their namespaces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import uuid4

from volsched.kube.kinds import Kind
from volsched.kube.manifest_reader import Loaded
from volsched.kube.problems import ManifestError, Problem
from volsched.kube.workloads import Node
from volsched.log.batch import load_states
from volsched.log.commands import Command, Outcome, Precondition, RejectedError, Scan
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import Decision, ObjectState, State
from volsched.log.observed_cluster import require_own_objects
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.objects.door import apply, controller, create, delete
from volsched.objects.object_write import Author, ObjectWrite
from volsched.objects.rules.admission import (
    NAMESPACE,
    NO_CONTEXT,
    SYSTEM_NAMESPACES,
    AdmissionContext,
    Origin,
    namespace_stream,
)
from volsched.objects.rules.lifecycle import adopted, claim_uids, unresolved
from volsched.objects.rules.object_events import AlreadyExistsError
from volsched.objects.surroundings import Subject, read_surroundings
from volsched.runtime.clock import Clock, rfc3339
from volsched.workloads.rules.repairs import ZonalReport

# Each object is a command of its own, so that a refused one does not block the others; only an import is all or
# nothing. The actor and the reason are kept with the event.

BATCH = 500


class Verb(StrEnum):
    APPLY = "apply"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Target:
    """An object given by name, without a manifest."""

    kind: Kind
    key: str


Rehearsed = Mapping[str, Any] | RejectedError
"""The result of a dry run, or the rules' error."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A dry run: writes are decided one after the other, each on the results of the earlier ones."""

    database: Database
    _over: dict[str, State] = field(default_factory=dict)

    def outcome(self, write: ObjectWrite) -> Rehearsed:
        with self.database.read() as connection:
            states, _ = load_states(self.database, connection, write.command.streams)
        try:
            decision = write.rehearse({**states, **self._over})
        except RejectedError as refusal:
            return refusal
        if write.state is not None:
            self._over[write.stream] = write.state
        return decision.result or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitter:
    """The actor who submits objects, and the reason."""

    database: Database
    clock: Clock
    actor: str
    reason: str | None = None
    zonal_upgrade: bool = True
    """Whether zone and region labels of new volumes are converted to node affinity."""

    def submit(
        self, loaded: Sequence[Loaded], verb: Verb, *, report: ZonalReport | None = None
    ) -> Iterator[tuple[Loaded, Outcome]]:
        """The outcome of each object, in order. `report` counts the results of the zonal upgrade."""
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

    def rehearse(self, loaded: Sequence[Loaded], verb: Verb) -> Iterator[tuple[Loaded, Rehearsed]]:
        """The outcome of each object in a dry run, in order; missing namespaces count as existing."""
        author = self._author()
        rehearsal = Rehearsal(self.database)
        for name in named_namespaces(loaded):
            rehearsal.outcome(create(NAMESPACE, namespace_manifest(name), author, uid=str(uuid4())))
        for entry, near in zip(loaded, self._surroundings(loaded, verb), strict=True):
            yield entry, rehearsal.outcome(self._write(entry, verb, near))

    def rehearse_deletion(self, targets: Sequence[Target]) -> list[Rehearsed]:
        rehearsal, author = Rehearsal(self.database), self._author()
        return [rehearsal.outcome(delete(target.kind.name, target.key, author)) for target in targets]

    def adopt(self, loaded: Sequence[Loaded]) -> Outcome:
        """Import all of another cluster's objects into an empty store, or none of them."""
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
                f"the store has {position} events already, and a cluster is imported into an empty store; name "
                "one: volsched import --db NEW -f DUMP"
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
        require_own_objects(self.database)
        return execute(self.database, [write.command for write in writes], now=self.clock())

    def _write(self, entry: Loaded, verb: Verb, around: AdmissionContext) -> ObjectWrite:
        kind, author = entry.kind.name, self._author()
        if verb is Verb.DELETE:
            return delete(kind, entry.key, author)
        make = apply if verb is Verb.APPLY else create
        return make(kind, entry.manifest, author, uid=str(uuid4()), around=around)

    def _surroundings(self, loaded: Sequence[Loaded], verb: Verb) -> list[AdmissionContext]:
        """The admission context of each object; all nodes of the input count, whatever their place in it."""
        if verb is Verb.DELETE:
            return [NO_CONTEXT] * len(loaded)
        subjects = [Subject(it.kind.name, it.key, it.manifest, changes=verb is Verb.APPLY) for it in loaded]
        nodes = [entry.value for entry in loaded if isinstance(entry.value, Node)]
        return read_surroundings(self.database, subjects, zonal_upgrade=self.zonal_upgrade, more_nodes=nodes)

    def _reasoned(self, event: NewEvent) -> NewEvent:
        return event if self.reason is None else replace(event, data={**event.data, "reason": self.reason})


def _somebody_wrote(event: Event) -> str:
    return f"{event.actor} wrote {event.stream}: the store is no longer empty"


# Namespaces that a starting server or a command creates because an object needs them.


def named_namespaces(loaded: Iterable[Loaded]) -> list[str]:
    """The objects' namespaces that none of them creates; without those that a server creates itself."""
    given = list(loaded)
    included = {entry.key for entry in given if entry.kind.name == NAMESPACE}
    named = dict.fromkeys(entry.value.meta.namespace for entry in given if entry.kind.namespaced)
    return [name for name in named if name not in included and name not in SYSTEM_NAMESPACES]


def namespace_manifest(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": name}}


def ensure_namespaces(database: Database, names: Sequence[str], *, actor: str, now: int) -> list[str]:
    """Create the missing namespaces; returns their names."""
    if not names:
        return []
    require_own_objects(database)
    with database.read() as connection:
        states, _ = load_states(database, connection, [namespace_stream(name) for name in names])
    there = {stream for stream, it in states.items() if isinstance(it, ObjectState) and it.manifest is not None}
    missing = [name for name in names if namespace_stream(name) not in there]
    author = controller(actor, now)
    commands = [create(NAMESPACE, namespace_manifest(name), author, uid=str(uuid4())).command for name in missing]
    outcomes = execute(database, commands, now=now) if commands else []
    for outcome in outcomes:
        # Another process may have created it meanwhile.
        if isinstance(outcome, Exception) and not isinstance(outcome, AlreadyExistsError):
            raise outcome
    return missing
