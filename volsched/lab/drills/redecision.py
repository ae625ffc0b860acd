"""Decides recorded requests again, under another profile or configuration, and compares.

This is no replay of the log, which applies recorded results and decides nothing. Every request is decided on the
world as it was at that moment, with everything recorded until then, and compared with the record. Consequences of
different decisions are not followed: each request is independent.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, select

from volsched.kube.meta import zone_of
from volsched.log import tables
from volsched.log.base import load_base
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.fold import BindingState, living
from volsched.log.reads.tail import fold_event, tail
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.rules.attempts import FAILED, PLANNED, message_of
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

CHUNK = 2_000
NO_ZONE = "no zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionChoice:
    """Where a request went, in the record or decided again."""

    node: str | None
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Claim → the existing volume."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    position: int
    """The position of the recorded decision; it was decided again on the world right before."""
    pod: str
    recorded: DecisionChoice
    again: DecisionChoice

    @property
    def verdict(self) -> str:
        if self.recorded.node is None and self.again.node is None:
            return "unschedulable both times"
        if self.again.node is None:
            return "unschedulable now"
        if self.recorded.node is None:
            return "schedulable now"
        if self.recorded.node != self.again.node:
            return "another node"
        return "the same" if self.recorded.volumes == self.again.volumes else "other volumes"


@dataclass(slots=True)
class Figures:
    """The totals of the recorded decisions, or of the new ones."""

    placed: int = 0
    unschedulable: int = 0
    wasted_bytes: int = 0
    """Bytes of the used volumes beyond the claims' requests."""
    zones: Counter[str] = field(default_factory=Counter)
    _fragments: list[float] = field(default_factory=list)

    @property
    def zone_skew(self) -> int:
        """Pods in the fullest zone beyond those in the emptiest; a zone with nodes but no pods counts 0."""
        return max(self.zones.values(), default=0) - min(self.zones.values(), default=0)

    @property
    def fragmentation(self) -> float | None:
        """The share of the free room, on average after a decision, outside the largest free volume."""
        return sum(self._fragments) / len(self._fragments) if self._fragments else None

    def add(self, choice: DecisionChoice, snapshot: Snapshot) -> None:
        for it in snapshot.nodes.values():
            self.zones.setdefault(zone_of(it.meta.labels) or NO_ZONE, 0)
        if choice.node is None:
            self.unschedulable += 1
            return
        self.placed += 1
        node = snapshot.nodes.get(choice.node)
        self.zones[NO_ZONE if node is None else zone_of(node.meta.labels) or NO_ZONE] += 1
        for key, name in choice.volumes.items():
            volume, claim = snapshot.volume(name), snapshot.claim(key)
            if volume is not None and claim is not None:
                self.wasted_bytes += max(volume.size.value() - claim.size.value(), 0)
        taken = set(choice.volumes.values())
        free = [
            it for it in map(snapshot.volume, snapshot.stored_volumes) if it is not None and it.claim_ref is None
        ]
        sizes = [it.size.value() for it in free if it.name not in taken]
        if choice.volumes and sum(sizes):
            self._fragments.append(1 - max(sizes) / sum(sizes))

    def as_json(self) -> dict[str, Any]:
        return {
            "placed": self.placed,
            "unschedulable": self.unschedulable,
            "wastedBytes": self.wasted_bytes,
            "zoneSkew": self.zone_skew,
            "zones": dict(sorted(self.zones.items())),
            "fragmentation": self.fragmentation,
        }


@dataclass(slots=True)
class Comparison:
    profile: str
    first: int
    last: int
    recorded: Figures = field(default_factory=Figures)
    again: Figures = field(default_factory=Figures)
    requests: list[Compared] = field(default_factory=list)

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(it.verdict for it in self.requests)

    @property
    def changed(self) -> list[Compared]:
        return [it for it in self.requests if it.verdict not in ("the same", "unschedulable both times")]

    def as_json(self) -> dict[str, Any]:
        return {
            "redecided": True,
            "profile": self.profile,
            "from": self.first,
            "to": self.last,
            "requests": len(self.requests),
            "verdicts": dict(sorted(self.verdicts.items())),
            "recorded": self.recorded.as_json(),
            "again": self.again.as_json(),
            "changed": [{**asdict(it), "verdict": it.verdict} for it in self.changed],
        }


def redecide(database: Database, *, profile: Profile, after: int, until: int) -> Comparison:
    """Decide every request again that was recorded after one position and until another."""
    comparison = Comparison(profile.name, after, until)
    with database.read() as connection:
        base = load_base(connection)
        world = World(database, position=base.head.position)
        world.begin(base.states)
        picture = Picture(world, Index(profile=profile))
        picture.update(world.states)
        attempts = _planned_by(connection)
        position = world.position
        while events := [it for it in tail(connection, after=position, limit=CHUNK) if it.position <= until]:
            position = events[-1].position
            for event in events:
                request = _request(event, attempts) if event.position > after else None
                if request is not None:
                    _compare(comparison, picture, event, *request)
                picture.update(world.take([event]))
    return comparison


def _planned_by(connection: Connection) -> frozenset[str]:
    """Bindings from a scheduler's attempt; others were made by hand, without a decision on a node."""
    attempts = tables.attempts
    asked = select(attempts.c.id).where(attempts.c.outcome.in_((PLANNED, FAILED)))
    return frozenset(connection.execute(asked).scalars())


def _request(event: Event, attempts: frozenset[str]) -> tuple[str, DecisionChoice] | None:
    """The pod of a recorded decision, and the decision; None for any other event."""
    noun, _, key = event.stream.partition("/")
    if event.type == "BindingPlanned" and key in attempts:
        state = fold_event(None, event.position, event.version, event.type, event.schema, event.at, event.data)
        assert isinstance(state, BindingState)
        legs = {leg.claim: leg.volume for leg in state.legs if leg.owner and leg.volume is not None}
        return state.plan["pod"], DecisionChoice(node=state.plan["node"], volumes=legs)
    if event.type == "AttemptMade" and noun == "attempt" and key not in attempts:
        return _refused(event)
    return None


def _refused(event: Event) -> tuple[str, DecisionChoice]:
    data = orjson.loads(event.data)
    return data["pod"], DecisionChoice(node=None, why=str(data.get("detail", {}).get("message", "")))


def _compare(comparison: Comparison, picture: Picture, event: Event, pod: str, recorded: DecisionChoice) -> None:
    index, states = picture.index, picture.world.states
    requested_pod = index.snapshot.pods.get(pod)
    if requested_pod is None or living(states, f"pod/{pod}") is None:
        # It was deleted between the decision and its record.
        return
    avoid = nodes_to_avoid(pod, states, since=rfc3339(event.at - AVOID_SECONDS * SECOND))
    again = _choice(index.decide(requested_pod, avoid=avoid, demerits=picture.demerits(requested_pod, event.at)))
    comparison.requests.append(Compared(position=event.position, pod=pod, recorded=recorded, again=again))
    comparison.recorded.add(recorded, index.snapshot)
    comparison.again.add(again, index.snapshot)


def _choice(attempt: Attempt) -> DecisionChoice:
    if attempt.chosen is None:
        return DecisionChoice(node=None, why=message_of(attempt))
    answer = attempt.chosen.answer
    volumes = {} if answer is None else {it.claim.key: it.volume.name for it in answer.bindings}
    return DecisionChoice(node=attempt.chosen.node, volumes=volumes)
