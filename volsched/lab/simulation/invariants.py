"""The invariants of a simulated run: after every choice, on a foreign cluster, and once it has come to rest."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from sqlalchemy import Connection, bindparam, func, select

from volsched.binding.rules.effects import ANNOTATE, PREBIND
from volsched.binding.rules.late_writes import stamp_of
from volsched.binding.rules.phases import SETTLED, UNDER_WAY, Phase
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.mirror import KINDS_MIRRORED
from volsched.cluster.port import Manifest, PortChange, whole
from volsched.kube.manifest import DIRTY, claim_is_bound, claim_of, spec, status, uid
from volsched.kube.workloads import Pod
from volsched.lab.simulation.actors import CLAIM, VOLUME
from volsched.lab.simulation.processes import SimulatedPlace
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import EffectState
from volsched.log.events.fold import BindingState, State, binding_stream
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.log.integrity.verify import verify
from volsched.log.reads.open_bindings import next_deadline
from volsched.log.row_states import object_state
from volsched.log.rows import VIEWS
from volsched.objects.observations import without_null_fields
from volsched.questions.invariants import Lookout, Violation
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.system import System
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, Demerits, nodes_to_avoid
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.scheduler import wants_node

# Invariants once a run has come to rest: everything that can be checked on a store and its surroundings.

_effects = tables.effects
_WRITES_TO_COME = select(_effects.c.binding, _effects.c.lane).where(
    _effects.c.kind.in_((PREBIND, ANNOTATE)), _effects.c.state != EffectState.PARKED
)


def overtaken(connection: Connection, states: dict[str, State]) -> Iterator[Violation]:
    """3: a leg does not end before the outcome of its write is known, at any moment."""
    for row in connection.execute(_WRITES_TO_COME):
        binding = states.get(binding_stream(row.binding))
        leg = int(row.lane.rpartition("/")[2])
        if isinstance(binding, BindingState) and binding.legs[leg].state in SETTLED:
            yield Violation(3, f"leg {leg} of binding {row.binding} has ended and its write is still to come")


def integrity(database: Database) -> Iterator[Violation]:
    """5 and 6: chain, density, and views that equal the log."""
    for finding in verify(database).findings:
        yield Violation(5, str(finding))


def same_picture(fresh: Picture, live: Picture) -> Iterator[Violation]:
    """5: the picture that followed the log equals one that is built from it."""
    for field in Snapshot.__dataclass_fields__:
        if field not in _NOT_COMPARED and getattr(fresh.index.snapshot, field) != getattr(
            live.index.snapshot, field
        ):
            yield Violation(
                5, f"{field} of a scheduler that lived through it are not those of one that starts now"
            )


_NOT_COMPARED = ("assumed_volumes", "assumed_claims", "reserved", "promised", "naming", "asking")
"""Overlays compare by identity, reservations end in their own time, and the rest is in volumes and claims."""


def no_pod_is_lost(picture: Picture, now: int) -> Iterator[Violation]:
    """3 and 9: no node accepts a waiting pod, and the index agrees with a scan of all nodes."""
    # Capacity held by ended bindings is released in its time, which wakes the pods that wait for it.
    picture.recall(now)
    index, states = picture.index, picture.world.states
    for pod in sorted(index.snapshot.pods.values(), key=lambda it: it.key):
        if not wants_node(pod):
            continue
        avoid = nodes_to_avoid(pod.key, states, since=rfc3339(now - AVOID_SECONDS * SECOND))
        yield from _judged(pod, index, avoid, picture.demerits(pod, now))


def _judged(pod: Pod, index: Index, avoid: frozenset[str], demerits: Demerits) -> Iterator[Violation]:
    found = index.decide(pod, avoid=avoid, demerits=demerits)
    walked = attempt(index.snapshot, pod, profile=index.profile, avoid=avoid, demerits=demerits)
    chosen, choice = (None if it.chosen is None else it.chosen.node for it in (found, walked))
    if chosen != choice:
        yield Violation(9, f"pod/{pod.key} goes to {chosen} by the index and to {choice} by walking all nodes")
    if chosen is not None:
        yield Violation(3, f"pod/{pod.key} could run on {chosen}, and nobody tries any more")


def fresh_picture(database: Database) -> Picture:
    world = World(database)
    picture = Picture(world)
    picture.update(world.catch_up())
    return picture


def mirrored(database: Database, api: ForeignApi) -> Iterator[Violation]:
    """5: our views of a foreign cluster equal its objects."""
    with database.read() as connection:
        for kind in KINDS_MIRRORED:
            rows = connection.execute(select(VIEWS[NOUN_OF_KIND[kind]][0])).mappings()
            views = {row["key"]: dict(object_state(dict(row)).manifest or {}) for row in rows}
            there = {_key(it): without_null_fields(it) for it in whole(api.list(kind)).objects}
            for key in sorted(views.keys() | there.keys()):
                if views.get(key) != there.get(key):
                    yield Violation(5, f"our view of {kind} {key} is not what the cluster has")


def _key(manifest: object) -> str:
    assert isinstance(manifest, dict)
    found = manifest["metadata"]
    return f"{found['namespace']}/{found['name']}" if "namespace" in found else str(found["name"])


# What must never be seen on a foreign cluster, write by write: checked in the cluster itself, not in views.
#
# While calls are under way our views may lag behind, so the invariants over views wait until a run has come to
# rest. No lag excuses the violations checked here.

HOLDING = (*UNDER_WAY, Phase.COMMITTING)


@dataclass(slots=True)
class Truth:
    api: ForeignApi
    position: int = 0
    last_manifests: dict[tuple[str, str], Manifest] = dataclass_field(default_factory=dict)
    claims: dict[str, Manifest] = dataclass_field(default_factory=dict)
    """Uid → claim."""

    def check(self, states: Mapping[str, State], theirs: Collection[int]) -> list[Violation]:
        """`theirs` are the versions that others wrote: only our own writes can be our fault."""
        violations: list[Violation] = []
        head = int(self.api.head)
        for change in self.api.changes_between(self.position, head):
            if change.kind in (CLAIM, VOLUME):
                before = self.last_manifests.get((change.kind, change.key))
                violations += self._judged(change, before, states, int(change.version) in theirs)
                self._keep(change, before)
        self.position = head
        return violations

    def _keep(self, change: PortChange, before: Manifest | None) -> None:
        if change.manifest is not None:
            self.last_manifests[change.kind, change.key] = change.manifest
            if change.kind == CLAIM:
                self.claims[uid(change.manifest)] = change.manifest
            return
        self.last_manifests.pop((change.kind, change.key), None)
        if before is not None:
            self.claims.pop(uid(before), None)

    def _judged(
        self, change: PortChange, before: Manifest | None, states: Mapping[str, State], theirs: bool
    ) -> Iterator[Violation]:
        after = change.manifest
        if before is None or after is None or uid(before) != uid(after):
            return
        if change.kind == CLAIM:
            yield from self._claim(change.key, before, after)
        else:
            yield from self._volume(change.key, before, after, states, theirs)

    def _claim(self, key: str, before: Manifest, after: Manifest) -> Iterator[Violation]:
        lost = spec(before).get("volumeName") and not spec(after).get("volumeName")
        if lost and status(before).get("dataState") == DIRTY:
            yield Violation(4, f"claim/{key} was dirty and lost its volume")
        if claim_is_bound(after) and not claim_is_bound(before):
            volume = self.last_manifests.get((VOLUME, str(spec(after)["volumeName"])))
            reference = None if volume is None else claim_of(volume)
            if volume is not None and (reference or {}).get("uid") != uid(after):
                yield Violation(1, f"claim/{key} was bound to a volume that does not point back")

    def _volume(
        self, name: str, before: Manifest, after: Manifest, states: Mapping[str, State], theirs: bool
    ) -> Iterator[Violation]:
        had, has = ((claim_of(it) or {}).get("uid") for it in (before, after))
        if had == has or not had:
            return
        holder = self.claims.get(had)
        if has:
            yield Violation(1, f"volume/{name} was given to {has} while it was {had}'s")
        elif holder is not None and spec(holder).get("volumeName") == name:
            dirty = status(holder).get("dataState") == DIRTY
            if dirty or claim_is_bound(holder):
                yield Violation(4 if dirty else 1, f"volume/{name} was taken from its claim, which is bound to it")
        stamp = stamp_of(before)
        binding = states.get(binding_stream(stamp)) if stamp is not None else None
        if not theirs and isinstance(binding, BindingState) and binding.state in HOLDING:
            yield Violation(2, f"volume/{name} was undone under binding {stamp}, which is {binding.state}")


# Violations as text: in full, and as kinds that are the same for other objects.

_NAMES = re.compile(r"\S*[/0-9]\S*")


def texts(violations: Sequence[Violation]) -> list[str]:
    return [f"{it.invariant}: {it.what}" for it in violations]


def shape(violation: Violation) -> str:
    """The kind of a violation, so that shrinking a schedule does not end with a different one."""
    return f"{violation.invariant}: {_NAMES.sub('…', violation.what)}"


# Checks of a simulated run: after every choice the invariants of any moment, at the end all of them.

_stream = tables.events.c.stream
_DEEDS = select(func.count()).where(
    tables.events.c.position > bindparam("since"), ~_stream.like("attempt/%"), ~_stream.like("notice/%")
)
_bindings = tables.bindings
_PLANS = (
    select(_bindings.c.pod, func.count().label("plans"))
    .where(_bindings.c.planned_at >= bindparam("since"))
    .group_by(_bindings.c.pod, _bindings.c.pod_uid)
)
MOST_PLANS = 12
"""Plans of one pod after the last fault: it may try each node, and conflict with work still under way."""
LATE_ABROAD = frozenset({1, 2, 4})
"""Invariants on which views of a foreign cluster may be wrong until they have caught up; `Truth` checks them."""


@dataclass(slots=True)
class RunObserver:
    database: Database
    place: SimulatedPlace
    lookout: Lookout = dataclass_field(default_factory=Lookout)
    _truth: Truth | None = None
    _last_place: tuple[int, int] = (-1, -1)
    """The number of commits at the last check, and the version of a foreign cluster."""

    def __post_init__(self) -> None:
        if self.place.api is not None:
            self._truth = Truth(self.place.api)

    def position(self, commits: int) -> int:
        """The position of the last event."""
        if commits == self._last_place[0]:
            return self.lookout.position
        with self.database.engine.connect() as connection:
            found: int = connection.exec_driver_sql("SELECT position FROM log_head").scalar_one()
        return found

    def check(self, commits: int) -> list[Violation]:
        """Checks what holds at any moment, if anything was written since the last check."""
        place = commits, self.place.version
        if place == self._last_place:
            return []
        self._last_place = place
        with self.database.read() as connection:
            violations = self.lookout.check(connection, at_rest=False)
            violations += overtaken(connection, self.lookout.states)
        if self._truth is not None:
            violations = [it for it in violations if it.invariant not in LATE_ABROAD]
            violations += self._truth.check(self.lookout.states, self.place.theirs)
        return violations

    def has_moved(self, since: int) -> bool:
        """Whether anything was written; a failed attempt to place a pod does not count."""
        with self.database.read() as connection:
            return bool(connection.execute(_DEEDS, {"since": since}).scalar_one())

    def too_many_plans(self, since: int) -> list[Violation]:
        """3: a refusal does not keep a pod from a node that would accept it."""
        with self.database.read() as connection:
            rows = connection.execute(_PLANS, {"since": since}).all()
        return [
            Violation(3, f"pod/{row.pod} was planned {row.plans} times after the last fault")
            for row in rows
            if row.plans > MOST_PLANS
        ]

    def deadline(self) -> int | None:
        """The earliest deadline of an open binding."""
        with self.database.read() as connection:
            return next_deadline(connection)

    def check_at_rest(self, system: System | None, now: int) -> list[Violation]:
        with self.database.read() as connection:
            violations = self.lookout.check(connection, at_rest=True)
        violations += integrity(self.database)
        fresh = fresh_picture(self.database)
        if system is not None:
            violations += same_picture(fresh, system.picture)
        violations += no_pod_is_lost(fresh, now)
        if self.place.api is not None:
            violations += mirrored(self.database, self.place.api)
        return violations

    def ends(self) -> Counter[str]:
        """The final states of bindings, counted."""
        bindings = tables.bindings
        with self.database.read() as connection:
            asked = select(bindings.c.state, func.count()).group_by(bindings.c.state)
            return Counter({f"bindings {state}": number for state, number in connection.execute(asked)})
