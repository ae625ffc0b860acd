"""The executor: claim effects, carry them out, record what came of it. Celery tasks and embedded loops share it.

On our own log a leg's writes and their record are one transaction, so there is nothing between them to lose. On a
foreign cluster they are calls, and the record follows; whatever happens between is found again by the next
attempt, because an act looks at the objects before it writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from volsched.binding.rules.effect_writes import EffectWrite, Outcome, next_step
from volsched.binding.rules.late_writes import UNDO, landed_since, record_undone
from volsched.binding.rules.phases import ALL_GUARDS, Guards
from volsched.binding.rules.saga import (
    ANNOTATE,
    BIND_POD,
    PREBIND,
    RELEASE,
    LegOutcome,
    advance,
    record_leg,
    record_pod,
)
from volsched.cluster.port import CallRefusedError, Cluster, Manifest, Refusal
from volsched.kube.manifest import uid
from volsched.kube.merge_patch import merged
from volsched.log.batch import load_states
from volsched.log.commands import Command, DeposedError, Done, EffectDone, Precondition
from volsched.log.database import Database
from volsched.log.effects import MAX_ATTEMPTS, Claimed, backoff, claim, extend, retry_later
from volsched.log.errors import ConnectionLostError
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.object_states import binding_stream
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key, stream_of
from volsched.log.reactions import Reaction
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import changed_event
from volsched.runtime.clock import SECOND, Clock, rfc3339
from volsched.runtime.fault_points import reach
from volsched.scheduling.rules.pod_scheduled import scheduled_event, scheduled_stream

WRITES = (PREBIND, ANNOTATE, RELEASE)
QUEUES = (*WRITES, BIND_POD)
"""In the order in which a binding goes through them."""
BATCH = 100
LEASE = 30 * SECOND
MOST_WRITES = 8
"""More writes than any act needs; an act that does not come to an end is a bug, not work."""


class EndlessActError(Exception):
    """An act went on writing without coming to an outcome."""


@dataclass(frozen=True, slots=True)
class ExecutorProgress:
    done: int = 0
    deposed: int = 0
    """Carried out by us, but another had taken the effect over."""
    retried: int = 0

    def __bool__(self) -> bool:
        return bool(self.done or self.deposed or self.retried)

    def __add__(self, other: "ExecutorProgress") -> "ExecutorProgress":
        return ExecutorProgress(self.done + other.done, self.deposed + other.deposed, self.retried + other.retried)


@dataclass(slots=True)
class Executor:
    database: Database
    cluster: Cluster
    owner: str
    """This run of this process."""
    guards: Guards = ALL_GUARDS
    react: Reaction = advance
    batch: int = BATCH
    lease: int = LEASE
    max_attempts: int = MAX_ATTEMPTS
    clock: Clock | None = None
    """With one, a lease is renewed before each effect of a batch of slow calls."""

    def step(self, queue: str, now: int) -> ExecutorProgress:
        """One batch of a queue, from claim to record."""
        claimed = claim(
            self.database,
            queue=queue,
            owner=self.owner,
            limit=self.batch,
            now=now,
            lease_for=self.lease,
            max_attempts=self.max_attempts,
        )
        if not claimed:
            return ExecutorProgress()
        reach("executor.claimed")
        if self.cluster.capabilities.is_own_log:
            return self._record(claimed, [self._fused(effect, now) for effect in claimed], now)
        # One by one: a crash loses the record of one effect, not of the batch.
        return sum((self._carry_out(effect, now) for effect in claimed), start=ExecutorProgress())

    def _carry_out(self, effect: Claimed, now: int) -> ExecutorProgress:
        if self.clock is not None:
            until = self.clock() + self.lease
            if not extend(self.database, {effect.key: effect.fence}, until=until):
                return ExecutorProgress(deposed=1)
        try:
            command = self._called(effect, now)
        except Exception as error:
            # Whatever the cluster or the act raised concerns this effect alone, and is kept with it.
            return self._retry(effect, error, now)
        return self._record([effect], [command], now)

    def _record(self, claimed: Sequence[Claimed], commands: Sequence[Command], now: int) -> ExecutorProgress:
        try:
            outcomes = execute(self.database, commands, now=now, react=self.react)
        except ConnectionLostError:
            # Whether it was recorded or not, the leases run out and the acts find what was done.
            return ExecutorProgress(retried=len(claimed))
        reach("executor.recorded")
        progress = ExecutorProgress()
        for effect, outcome in zip(claimed, outcomes, strict=True):
            if isinstance(outcome, Done):
                progress += ExecutorProgress(done=1)
            elif isinstance(outcome, DeposedError):
                progress += ExecutorProgress(deposed=1)
            else:
                progress += self._retry(effect, outcome, now)
        return progress

    def _retry(self, effect: Claimed, error: Exception, now: int) -> ExecutorProgress:
        due = now + backoff(effect.attempts)
        told = f"{type(error).__name__}: {error}"
        retry_later(
            self.database, key=effect.key, fence=effect.fence, due=due, error=told, max_attempts=self.max_attempts
        )
        return ExecutorProgress(retried=1)

    def _fused(self, effect: Claimed, now: int) -> Command:
        """Writes and record as one command."""

        def decide(states: States) -> Decision:
            working: dict[str, State] = dict(states)
            events: list[NewEvent] = []

            def write(step: EffectWrite) -> None:
                stream = stream_of(step.kind, step.key)
                events.append(changed_event(stream, step.patch, binding=effect.binding))
                working[stream] = _patched(working[stream], step)

            recorded = _recorded(effect, self._drive(effect, working, write, now), working, now)
            return Decision(events=(*events, *recorded.events), effects=recorded.effects)

        return self._command(effect, decide)

    def _called(self, effect: Claimed, now: int) -> Command:
        """Writes as calls; answers the command that records what came of them."""
        with self.database.read() as connection:
            wanted = [binding_stream(effect.binding or ""), *effect.data["streams"]]
            states, _ = load_states(self.database, connection, wanted)
        seen: dict[str, State] = dict(states)
        self._look(effect, seen)
        outcome = self._drive(effect, seen, lambda step: self._call(effect, step, seen), now)

        def decide(states: States) -> Decision:
            recorded = _recorded(effect, outcome, states, now)
            if effect.kind == BIND_POD:
                return recorded
            strays = landed_since(effect.binding or "", _leg(effect), recorded, seen, states)
            return replace(recorded, effects=(*recorded.effects, *strays))

        return self._command(effect, decide)

    def _drive(
        self, effect: Claimed, states: States, write: Callable[[EffectWrite], None], now: int
    ) -> Outcome | None:
        """Let the act write until it knows its outcome; None where the effect has become void."""
        can_unbind, time = self.cluster.capabilities.can_unbind, rfc3339(now)
        for _ in range(MOST_WRITES):
            step = next_step(
                effect.kind,
                effect.binding or "",
                _leg(effect),
                states,
                now=time,
                guards=self.guards,
                can_unbind=can_unbind,
            )
            if not isinstance(step, EffectWrite):
                return step
            write(step)
        raise EndlessActError(f"{effect.key} has written {MOST_WRITES} times and comes to no end")

    def _call(self, effect: Claimed, step: EffectWrite, seen: dict[str, State]) -> None:
        stream = stream_of(step.kind, step.key)
        held = seen[stream]
        manifest = merged((held.manifest if isinstance(held, ObjectState) else None) or {}, step.patch)
        reach("executor.calling")
        try:
            if step.kind == "Pod":
                node = manifest["spec"]["nodeName"]
                written = self.cluster.bind_pod(step.key, uid=uid(manifest), node=node)
            else:
                written = self.cluster.update(step.kind, manifest, status=step.status)
        except CallRefusedError as refused:
            if refused.refusal is Refusal.INVALID:
                raise
            # Somebody was faster, or it was our own earlier attempt: the act looks at everything again, because
            # whoever changed this object may have completed the claim that the act still holds for unbound.
            self._look(effect, seen)
        else:
            seen[stream] = _seen(written)
        reach("executor.called")

    def _look(self, effect: Claimed, seen: dict[str, State]) -> None:
        for stream in effect.data["streams"]:
            noun, key = noun_and_key(stream)
            found = self.cluster.get(KIND_OF_NOUN[noun].name, key)
            if found is None:
                seen.pop(stream, None)
            else:
                held = seen.get(stream)
                # What was assumed is known to our log alone; everything else is as the cluster has it.
                seen[stream] = _seen(found)._replace(assumed=getattr(held, "assumed", None))

    def _command(self, effect: Claimed, decide: Callable[[States], Decision]) -> Command:
        done = EffectDone(key=effect.key, fence=effect.fence, outcome="done")
        streams = (binding_stream(effect.binding or ""), *effect.data["streams"], *_told_in(effect))
        precondition = Precondition(effect=done)
        return Command(
            actor=self.owner, streams=streams, decide=decide, cause=effect.position, precondition=precondition
        )


def _leg(effect: Claimed) -> int:
    return int(effect.data.get("leg", 0))


def _told_in(effect: Claimed) -> tuple[str, ...]:
    """Where it is told that the pod got its node, if that is what the effect is about."""
    if effect.kind != BIND_POD:
        return ()
    pods = (stream for stream in effect.data["streams"] if stream.startswith("pod/"))
    return tuple(scheduled_stream(stream.removeprefix("pod/"), effect.binding or "") for stream in pods)


def _recorded(effect: Claimed, outcome: Outcome | None, states: States, now: int) -> Decision:
    binding = effect.binding or ""
    if outcome is None:
        return NOTHING
    if isinstance(outcome, LegOutcome) and effect.kind == UNDO:
        return record_undone(binding, _leg(effect), outcome, states)
    if isinstance(outcome, LegOutcome):
        return record_leg(binding, _leg(effect), outcome, states)
    recorded, state = record_pod(binding, outcome, states), states.get(binding_stream(binding))
    if not outcome.bound or not recorded.events or not isinstance(state, BindingState):
        return recorded
    (stream,) = _told_in(effect)
    told = scheduled_event(state.plan, stream, binding=binding, now=rfc3339(now))
    return replace(recorded, events=(told, *recorded.events))


def _patched(state: State, step: EffectWrite) -> State:
    assert isinstance(state, ObjectState)
    return state._replace(manifest=merged(state.manifest or {}, step.patch))


def _seen(manifest: Manifest) -> ObjectState:
    """An object just read or written, in the shape in which acts look at objects."""
    return ObjectState(version=0, manifest=manifest)
