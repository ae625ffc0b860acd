"""The scheduler's loop: take pods that wait for a node, decide, and plan every decision as one transaction.

Several pods are decided against one picture, each seeing what the ones before it took, and planned in one commit.
A plan that is refused because somebody was faster is decided again. What a pod waits for is not tracked yet: one
that found no node is tried again when anything has changed and its back-off is over.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from volsched.core.attempts import attempt_made
from volsched.core.binding.conflicts import outdated
from volsched.core.binding.planning import Plan, PlanConflictError, PlannedLeg, plan
from volsched.core.binding.requesting import claims_to_ask_back
from volsched.core.binding.seen import version
from volsched.core.cycle import Attempt, attempt
from volsched.core.decision import Decision, States
from volsched.core.fold import ObjectState
from volsched.core.rejected import AVOID_SECONDS, nodes_to_avoid
from volsched.core.reserving import Reservation, assume_pod_volumes
from volsched.core.status import AttemptError
from volsched.engine.asking import ask_back
from volsched.engine.clock import SECOND, rfc3339
from volsched.engine.picture import Picture
from volsched.events.envelope import NewEvent
from volsched.events.streams import noun_and_key
from volsched.faults import reach
from volsched.model.workloads import Pod
from volsched.store.commands import Command, ConflictError, Done, Seen
from volsched.store.database import Database
from volsched.store.transaction import execute

BATCH = 128
BIND_TIMEOUT_SECONDS = 600
FIRST_BACKOFF = 1 * SECOND
LONGEST_BACKOFF = 10 * SECOND
LONGEST_WAIT = 300 * SECOND
"""A pod that found no node is tried again after this long even if nothing has changed."""
MOST_DIGITS = 7
"""Of a time-out in seconds: some months. Anything longer is a slip of the pen."""
MOST_REFUSED = 3
"""Plans that may come too late in a row before their pod waits for its back-off."""
NEVER = -1
"""Before every position: of a pod that must be tried again although nothing has changed."""
OURS = ("", "default-scheduler", "volsched")
"""Values of schedulerName that mean us."""
TIMEOUT_SECONDS = "volsched.io/bind-timeout-seconds"
ON_FAILURE = "volsched.io/on-failure"


@dataclass(slots=True)
class _Waiting:
    """A pod that found no node: when it may be tried again, and what it was told."""

    uid: str
    failures: int
    not_before: int
    at_latest: int
    decided_at: int
    attempt: str
    said: str


@dataclass(frozen=True, slots=True)
class _Planned:
    pod: Pod
    plan: Plan
    attempt: Attempt


@dataclass(slots=True)
class Scheduler:
    database: Database
    picture: Picture
    owner: str
    new_id: Callable[[], str]
    batch: int = BATCH
    bind_timeout_seconds: int = BIND_TIMEOUT_SECONDS
    _active: dict[str, None] = field(default_factory=dict)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _plans: dict[str, int] = field(default_factory=dict)
    """How often a pod that is not bound yet was planned."""
    _refused: dict[str, int] = field(default_factory=dict)
    """How often in a row a pod's plan came too late."""
    _changed_at: int = 0
    """The world's position when it last changed in a way that could help a waiting pod."""

    def update(self, streams: Iterable[str], now: int) -> None:
        """Take note of what has changed in the world; the picture was updated before."""
        for stream in streams:
            noun, key = noun_and_key(stream)
            if noun == "pod":
                self._look(key, now)
            if noun != "notice":
                self._changed_at = self.picture.world.position

    def step(self, now: int) -> int:
        """Decide a batch of pods and plan what was decided; answers how many were looked at."""
        self._wake(now)
        keys = list(islice(self._active, self.batch))
        planned: list[_Planned] = []
        refusals: list[Command] = []
        try:
            for key in keys:
                del self._active[key]
                pod = self.picture.index.snapshot.pods.get(key)
                if pod is not None and self._wants_node(pod):
                    self._decide(pod, planned, refusals, now)
            # Before the plans: a claim that is asked back cannot be planned with in the same breath.
            execute(self.database, refusals, now=now)
            if planned:
                reach("scheduler.decided")
                self._commit(planned, now)
                reach("scheduler.planned")
        except Exception:
            # Nobody knows what was committed. The log does: what was only imagined is taken back, and all of these
            # pods are looked at again.
            self._active |= dict.fromkeys(keys)
            for entry in planned:
                self.picture.update(entry.plan.streams)
            self.picture.wake_up()
            raise
        return len(keys)

    def next_due(self) -> int | None:
        """When a pod may be tried again of which there is something new; None: not before something changes."""
        ready = (it.not_before for it in self._waiting.values() if it.decided_at < self._changed_at)
        return min(ready, default=None)

    def waiting(self) -> Mapping[str, str]:
        """Pods that found no node, and why."""
        return {key: entry.said for key, entry in self._waiting.items()}

    def _look(self, key: str, now: int) -> None:
        pod = self.picture.index.snapshot.pods.get(key)
        waiting = self._waiting.get(key)
        if pod is None or (waiting is not None and waiting.uid != pod.meta.uid):
            # Gone, or made anew under the same name: what the old one was told does not count.
            self._waiting.pop(key, None)
            self._plans.pop(key, None)
        if pod is None or not self._wants_node(pod):
            self._active.pop(key, None)
            self._waiting.pop(key, None)
            if pod is not None and pod.node_name and key not in self.picture.planned:
                self._plans.pop(key, None)
        elif key not in self._waiting:
            if key in self._plans:
                # It was planned and is back: its binding failed. What made it fail may take a moment to go away.
                self._put_off(pod, self._plans[key], "", now)
            else:
                self._active[key] = None

    def _put_off(self, pod: Pod, failures: int, said: str, now: int) -> None:
        """Try the pod again after its back-off, whether anything changes or not."""
        again = now + _backoff(failures)
        self._waiting[pod.key] = _Waiting(pod.meta.uid, failures, again, again, NEVER, "", said)

    def _wants_node(self, pod: Pod) -> bool:
        return (
            not pod.node_name
            and pod.scheduler_name in OURS
            and not pod.meta.being_deleted
            and not pod.scheduling_gates
            and pod.key not in self.picture.planned
        )

    def _wake(self, now: int) -> None:
        for key, entry in tuple(self._waiting.items()):
            changed = entry.decided_at < self._changed_at and now >= entry.not_before
            if changed or now >= entry.at_latest:
                self._active[key] = None

    def _decide(self, pod: Pod, planned: list[_Planned], refusals: list[Command], now: int) -> None:
        """One cycle. The picture shows the decision from here on, so that the next pod sees it."""
        index, avoid = self.picture.index, self._avoided(pod, now)
        snapshot = index.snapshot
        found = attempt(snapshot, pod, profile=index.profile, avoid=avoid) if avoid else index.decide(pod)
        if found.chosen is None:
            refusals += self._reject(pod, found, avoid, now)
            return
        node = snapshot.nodes[found.chosen.node]
        try:
            _, reservation = assume_pod_volumes(snapshot, pod, node, found.chosen.answer, profile=index.profile)
        except AttemptError as error:
            self._put_off(pod, 1, str(error), now)
            return
        decided = self._plan(pod, found, reservation, now)
        planned.append(_Planned(pod, decided, found))
        reserved: Counter[str] = Counter()
        for leg in decided.legs:
            if leg.capacity is not None and leg.bytes is not None:
                reserved[leg.capacity] += leg.bytes
        volumes = (assumed.volume for assumed in reservation.volumes)
        self.picture.imagine([*volumes, *reservation.claims, replace(pod, node_name=node.name)], reserved)

    def _avoided(self, pod: Pod, now: int) -> frozenset[str]:
        since = rfc3339(now - AVOID_SECONDS * SECOND)
        return nodes_to_avoid(pod.key, self.picture.world.states, since=since)

    def _plan(self, pod: Pod, found: Attempt, reservation: Reservation, now: int) -> Plan:
        assert found.chosen is not None
        owners = self.picture.owners
        legs = [
            PlannedLeg(claim=claim.key, claim_uid=claim.meta.uid, volume=claim.volume_name, rv="", bound=True)
            for claim in found.claims.bound
        ]
        for assumed in reservation.volumes:
            rv = self._version(f"volume/{assumed.volume.name}")
            owner = owners.get(assumed.claim.key)
            legs.append(
                PlannedLeg(
                    claim=assumed.claim.key, claim_uid=assumed.claim.meta.uid, volume=assumed.volume.name, rv=rv,
                    joins=owner,
                )
            )  # fmt: skip
        for provision in () if reservation.all_bound else found.chosen.answer.provisions:
            claim = provision.claim
            capacity = None if provision.capacity is None else provision.capacity.key
            legs.append(
                PlannedLeg(
                    claim=claim.key,
                    claim_uid=claim.meta.uid,
                    volume=None,
                    rv=self._version(f"claim/{claim.key}"),
                    joins=owners.get(claim.key),
                    capacity=capacity,
                    bytes=None if capacity is None else self.picture.index.profile.bytes_of(claim.size),
                )
            )
        return Plan(
            binding=self.new_id(),
            pod=pod.key,
            pod_uid=pod.meta.uid,
            node=found.chosen.node,
            legs=tuple(legs),
            decided_at=self.picture.world.position,
            deadline=now + _seconds(pod, self.bind_timeout_seconds) * SECOND,
            on_failure=_on_failure(pod),
        )

    def _version(self, stream: str) -> str:
        state = self.picture.world.states[stream]
        assert isinstance(state, ObjectState)
        return version(state)

    def _commit(self, planned: Sequence[_Planned], now: int) -> None:
        outcomes = execute(self.database, [self._command(entry) for entry in planned], now=now)
        faster: tuple[type[Exception], ...] = (ConflictError, PlanConflictError, *self.database.refusals)
        for entry, outcome in zip(planned, outcomes, strict=True):
            key = entry.pod.key
            if isinstance(outcome, Done):
                self._waiting.pop(key, None)
                self._refused.pop(key, None)
                self._plans[key] = self._plans.get(key, 0) + 1
                continue
            self.picture.update(entry.plan.streams)
            self._refused[key] = self._refused.get(key, 0) + 1
            if isinstance(outcome, faster) and self._refused[key] <= MOST_REFUSED:
                # Somebody was faster. The world has moved on by then, so the next decision sees why.
                self._active[key] = None
            else:
                self._put_off(entry.pod, self._refused[key], str(outcome), now)
        self.picture.wake_up()

    def _command(self, entry: _Planned) -> Command:
        made = attempt_made(entry.pod, entry.attempt, entry.plan.binding, entry.plan.decided_at, self.owner)

        def decide(states: States) -> Decision:
            decision = plan(entry.plan, states)
            return replace(decision, events=(*decision.events, made))

        return Command(
            actor=self.owner,
            streams=(*entry.plan.streams, made.stream),
            decide=decide,
            seen=Seen(entry.plan.decided_at, outdated(entry.plan)),
        )

    def _reject(self, pod: Pod, found: Attempt, avoid: Collection[str], now: int) -> list[Command]:
        """Keep why, and ask claims back if that would help; equal answers are only counted."""
        decided_at, before = self.picture.world.position, self._waiting.get(pod.key)
        failures = 1 if before is None else before.failures + 1
        said = "; ".join(found.status.reasons)
        commands = []
        if before is not None and before.attempt and before.said == said:
            id_ = before.attempt
            repeat = NewEvent(stream=f"attempt/{id_}", type="AttemptRepeated", data={"decided_at": decided_at})
            commands.append(_writing(self.owner, repeat))
        else:
            id_ = self.new_id()
            commands.append(_writing(self.owner, attempt_made(pod, found, id_, decided_at, self.owner)))
        index = self.picture.index
        wanted = claims_to_ask_back(index.snapshot, pod, said, profile=index.profile, avoid=avoid)
        if wanted:
            commands += ask_back(self.picture.world, pod, wanted, actor=self.owner, now=now)
        again, latest = now + _backoff(failures), now + LONGEST_WAIT
        self._waiting[pod.key] = _Waiting(pod.meta.uid, failures, again, latest, decided_at, id_, said)
        return commands


def _backoff(failures: int) -> int:
    return min(FIRST_BACKOFF << min(failures - 1, 10), LONGEST_BACKOFF)


def _seconds(pod: Pod, default: int) -> int:
    given = pod.meta.annotations.get(TIMEOUT_SECONDS, "")
    return int(given) if given.isdecimal() and len(given) <= MOST_DIGITS else default


def _on_failure(pod: Pod) -> Literal["rollback", "retain"]:
    return "retain" if pod.meta.annotations.get(ON_FAILURE) == "retain" else "rollback"


def _writing(actor: str, event: NewEvent) -> Command:
    return Command(actor=actor, streams=(event.stream,), decide=lambda _: Decision(events=(event,)))
