"""The executor: claims effects, carries them out, records the results. Celery tasks and embedded loops share it.

On our own log a leg's writes and their record are one transaction, so nothing can be lost between them. On a
foreign cluster the writes are calls and the record follows. A first attempt to go forward writes at once, on the
versions of the plan, and reads only after a refusal. Every later attempt, and every release, reads the objects
before it writes, and so finds partial writes of a crashed attempt. Before an attempt gives up a write that may
still be in flight, it fences the object.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

from volsched.binding.cluster_calls import (
    EndlessActError,
    call,
    note_nomination,
    read_from_cluster,
    remove_gate,
    remove_gone_node,
    write_notice,
)
from volsched.binding.rules.effect_writes import next_step
from volsched.binding.rules.effects import (
    ANNOTATE,
    BIND_POD,
    NOMINATE,
    PREBIND,
    RELEASE,
    UNNOMINATE,
    ClusterWrite,
    EffectWrite,
    LegOutcome,
    NominationOutcome,
    Outcome,
)
from volsched.binding.rules.foreign_notice import TELL, UNGATE, UNSELECT
from volsched.binding.rules.late_writes import UNDO, landed_since, record_undone
from volsched.binding.rules.phases import ALL_GUARDS, Guards, LegPhase
from volsched.binding.rules.safe_release import Undecided
from volsched.binding.rules.saga import advance, record_leg, record_nomination, record_pod
from volsched.cluster.port import Cluster, UnansweredError
from volsched.kube.patches import merged
from volsched.log.batch import load_states
from volsched.log.commands import (
    NO_PRECONDITION,
    Command,
    Continuation,
    DeposedError,
    Done,
    EffectDone,
    FollowUp,
    Precondition,
    Progress,
)
from volsched.log.database import Database
from volsched.log.effects import MAX_ATTEMPTS, Claimed, backoff, claim, extend, retry_later
from volsched.log.errors import ConnectionLostError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import (
    NOTHING,
    BindingState,
    Decision,
    NewEffect,
    ObjectState,
    State,
    States,
    binding_stream,
)
from volsched.log.events.streams import noun_and_key, stream_of
from volsched.log.reactions import Reaction
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import changed_event
from volsched.runtime.clock import SECOND, Clock, rfc3339
from volsched.runtime.fault_points import reach
from volsched.scheduling.rules.attempts import scheduled_event, scheduled_stream

WRITES = (PREBIND, ANNOTATE, RELEASE)
QUEUES = (*WRITES, BIND_POD, TELL)
"""The queues in the order in which a binding passes through them; reports come last."""
AT_ONCE = (PREBIND, BIND_POD)
"""Effects that may be carried out in the transaction that queues them. A provisioner is slow, and a release must
read the writes of others since."""
FORWARD = (NOMINATE, PREBIND, ANNOTATE, BIND_POD)
PATIENT_ATTEMPTS = 6
"""Number of checks before a half-bound leg is retained: about 15 s, in which a PV controller resyncs."""
UNANSWERED_ATTEMPTS = 12
"""Attempts before an effect is given up while the cluster does not answer or our lock is lost: about 20 minutes.
Such errors say nothing about the effect, and giving up a release keeps a volume that could have been released."""
BATCH = 100
MOST_WRITES = 8
"""More writes than any act needs; an act that does not end is a bug."""


class LockLostError(Exception):
    """Our lock is lost, and nothing was sent: another installation may act on the cluster now."""


class UndecidedError(Exception):
    """The act waits for other writers; it is retried a moment later."""


@dataclass(frozen=True, slots=True)
class ExecutorProgress:
    done: int = 0
    deposed: int = 0
    """Effects that we carried out after another process had taken them over."""
    retried: int = 0

    def __bool__(self) -> bool:
        return bool(self.done or self.deposed or self.retried)

    def __add__(self, other: "ExecutorProgress") -> "ExecutorProgress":
        return ExecutorProgress(self.done + other.done, self.deposed + other.deposed, self.retried + other.retried)


Attempted = Command | Exception
Completion = Callable[[str, str, States], Command | None]
"""The PV controller's part for a volume that was just written for a binding: it and its claim are bound."""
SideBySide = Callable[[Callable[[Claimed], Attempted], Sequence[Claimed]], Iterable[Attempted]]


@dataclass(frozen=True, slots=True)
class Executor:
    database: Database
    cluster: Cluster
    owner: str
    """Identifies this run of this process."""
    lease: int
    """How long a claimed effect may take before another process takes it over, in microseconds."""
    guards: Guards = ALL_GUARDS
    react: Reaction = advance
    batch: int = BATCH
    max_attempts: int = MAX_ATTEMPTS
    clock: Clock | None = None
    """With a clock, a lease is renewed before each effect of a batch of slow calls."""
    new_mark: Callable[[], str] = lambda: uuid4().hex
    """Returns a value never used before, not even by the process whose backup our store was restored from."""
    began_at: int = 0
    """The log's position at our start. Work that was queued before may have been sent, whatever its count of
    attempts: the store may be restored from a backup."""
    side_by_side: SideBySide | None = None
    """Makes the calls of a batch concurrently; None: one by one."""
    _nominated: dict[str, str] = field(default_factory=dict)
    """Pod's uid → the version that our nomination gave it; the mirror may not have seen it yet."""
    completion: Completion | None = None
    """If set, on our own log, a binding is carried to its end in the transaction in which it is planned or first
    written; None: every step is a transaction."""
    may_act: Callable[[], bool] = lambda: True
    """Whether this installation may write to the cluster. Called before work is claimed and before each call."""

    def step(self, queue: str, now: int) -> ExecutorProgress:
        """Carry out one batch of a queue, from claim to record."""
        if not self.may_act():
            return ExecutorProgress()
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
        if self.side_by_side is not None:
            return self._carry_out_all(claimed, now)
        # One by one: a crash loses the record of one effect, not of the batch.
        return sum((self._carry_out(effect, now) for effect in claimed), start=ExecutorProgress())

    def _carry_out(self, effect: Claimed, now: int) -> ExecutorProgress:
        if self.clock is not None:
            until = self.clock() + self.lease
            if not extend(self.database, {effect.key: effect.fence}, until=until):
                return ExecutorProgress(deposed=1)
        command = self._attempted(effect, self._states_in_log(effect), now)
        if isinstance(command, Exception):
            return self._retry(effect, command, now)
        return self._record([effect], [command], now)

    def _carry_out_all(self, claimed: Sequence[Claimed], now: int) -> ExecutorProgress:
        """Make the calls concurrently, and record them in one commit: effects of a batch have different lanes."""
        assert self.side_by_side is not None
        known = {effect.key: self._states_in_log(effect) for effect in claimed}
        commands = list(self.side_by_side(lambda effect: self._attempted(effect, known[effect.key], now), claimed))
        done = [
            (effect, command)
            for effect, command in zip(claimed, commands, strict=True)
            if not isinstance(command, Exception)
        ]
        progress = ExecutorProgress()
        if done:
            progress += self._record([effect for effect, _ in done], [command for _, command in done], now)
        for effect, error in zip(claimed, commands, strict=True):
            if isinstance(error, Exception):
                progress += self._retry(effect, error, now)
        return progress

    def _attempted(self, effect: Claimed, known: dict[str, State], now: int) -> Attempted:
        """The command or error of one effect. Any error of the cluster or the act is stored with this effect."""
        try:
            if not self.may_act():
                raise LockLostError("this installation may not write into the cluster any more; see volsched logs")
            if effect.kind == UNGATE:
                return self._ungated(effect, known)
            if effect.kind == UNSELECT:
                return self._unselected(effect)
            return (
                self._report_to_cluster(effect, known, now)
                if effect.kind == TELL
                else self._called(effect, known, now)
            )
        except Exception as error:
            return error

    def _states_in_log(self, effect: Claimed) -> dict[str, State]:
        """The effect's binding and objects as the log has them."""
        own = () if effect.binding is None else (binding_stream(effect.binding),)
        with self.database.read() as connection:
            states, _ = load_states(self.database, connection, [*own, *effect.data["streams"]])
        return dict(states)

    def _record(self, claimed: Sequence[Claimed], commands: Sequence[Command], now: int) -> ExecutorProgress:
        try:
            outcomes = execute(self.database, commands, now=now, react=self.react, go_on=self.continuation(now))
        except ConnectionLostError:
            # If the records are lost, the leases expire, and the acts find the earlier writes.
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
        due = now + max(backoff(effect.attempts), _retry_after(error))
        message = f"{type(error).__name__}: {error}"
        is_silence = isinstance(error, (UnansweredError, LockLostError))
        most = max(self.max_attempts, UNANSWERED_ATTEMPTS) if is_silence else self.max_attempts
        retry_later(self.database, key=effect.key, fence=effect.fence, due=due, error=message, max_attempts=most)
        return ExecutorProgress(retried=1)

    def continuation(self, now: int) -> Continuation | None:
        """Continues a binding within a transaction; None if each step has its own transaction."""
        complete = self.completion
        if complete is None or not self.cluster.capabilities.is_own_log:
            return None

        def go_on(progress: Progress) -> list[FollowUp]:
            follow_ups = [
                FollowUp(command=self._at_once(effect, position, now), effect=effect.key)
                for effect, position in progress.effects
                if effect.kind in AT_ONCE
            ]
            written = (event.binding for event in progress.events if event.type == "VolumeChanged")
            for binding in dict.fromkeys(it for it in written if it in progress.bindings):
                assert binding is not None
                for volume in _only_unbound(binding, progress.states):
                    # An error concerns this leg alone; the controller meets it too, and reports it.
                    with suppress(Exception):
                        command = complete(binding, volume, progress.states)
                        follow_ups += [] if command is None else [FollowUp(command=command)]
            return follow_ups

        return go_on

    def _at_once(self, effect: NewEffect, position: int, now: int) -> Command:
        """Like `_fused` after a claim, but no other process can have claimed the effect."""
        claimed = Claimed(
            key=effect.key,
            lane=effect.lane,
            queue=effect.queue,
            kind=effect.kind,
            binding=effect.binding,
            data=effect.data,
            position=position,
            fence=0,
            attempts=1,
        )
        return replace(self._fused(claimed, now), precondition=NO_PRECONDITION)

    def _fused(self, effect: Claimed, now: int) -> Command:
        """The writes of an effect and their record as one command."""

        def decide(states: States) -> Decision:
            working: dict[str, State] = dict(states)
            events: list[NewEvent] = []

            def write(step: ClusterWrite) -> bool:
                assert isinstance(step, EffectWrite)
                stream = stream_of(step.kind, step.key)
                events.append(changed_event(stream, step.patch, binding=effect.binding))
                working[stream] = _patched(working[stream], step)
                return True

            recorded = _recorded(effect, self._drive(effect, working, write, now), working, now)
            return Decision(events=(*events, *recorded.events), effects=recorded.effects)

        return self._command(effect, decide)

    def _called(self, effect: Claimed, known: dict[str, State], now: int) -> Command:
        """Make the writes of an effect as calls; returns the command that records their outcome."""
        may_land = effect.attempts > 1 or effect.position <= self.began_at or effect.kind == UNNOMINATE
        if may_land or effect.kind not in FORWARD:
            read_from_cluster(self.cluster, effect, known)
        elif effect.kind == BIND_POD:
            note_nomination(self._nominated, known)
        fences = may_land and self.cluster.capabilities.can_fence

        def write(step: ClusterWrite) -> bool:
            return call(self.cluster, effect, step, known, new_mark=self.new_mark, nominated=self._nominated)

        outcome = self._drive(effect, known, write, now, may_land=fences)

        def decide(states: States) -> Decision:
            recorded = _recorded(effect, outcome, states, now)
            if effect.kind in (BIND_POD, NOMINATE, UNNOMINATE):
                return recorded
            strays = landed_since(effect.binding or "", _leg(effect), recorded, known, states)
            return replace(recorded, effects=(*recorded.effects, *strays))

        return self._command(effect, decide)

    def _report_to_cluster(self, effect: Claimed, known: dict[str, State], now: int) -> Command:
        (stream,) = effect.data["streams"]
        write_notice(
            self.cluster, effect.data, known.get(stream), now, name=self.new_mark()[:16], instance=self.owner
        )
        return self._command(effect, lambda _: NOTHING)

    def _ungated(self, effect: Claimed, known: dict[str, State]) -> Command:
        """Remove the gate of a pod whose claims we do not bind, unless it was planned meanwhile."""
        (stream,), held = effect.data["streams"], known.get(effect.data["streams"][0])
        if not isinstance(held, ObjectState) or held.assumed is None:
            remove_gate(self.cluster, noun_and_key(stream)[1], effect.data)
        return self._command(effect, lambda _: NOTHING)

    def _unselected(self, effect: Claimed) -> Command:
        remove_gone_node(self.cluster, noun_and_key(effect.data["streams"][0])[1], effect.data)
        return self._command(effect, lambda _: NOTHING)

    def _drive(
        self,
        effect: Claimed,
        states: States,
        write: Callable[[ClusterWrite], bool],
        now: int,
        *,
        may_land: bool = False,
    ) -> Outcome | None:
        """Let the act write until it has an outcome; None if the effect has become void."""
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
                may_land=may_land,
                patient=effect.attempts < PATIENT_ATTEMPTS,
                places_pods=self.cluster.capabilities.places_pods,
            )
            if isinstance(step, Undecided):
                raise UndecidedError(f"{step.row.value}: waiting for the cluster's PV controller")
            if not isinstance(step, ClusterWrite):
                return step
            # A write on the version just read makes a late write on that version fail.
            may_land = not write(step) and may_land
        raise EndlessActError(f"{effect.key} has written {MOST_WRITES} times without an outcome")

    def _command(self, effect: Claimed, decide: Callable[[States], Decision]) -> Command:
        done = EffectDone(key=effect.key, fence=effect.fence, outcome="done")
        own = () if effect.binding is None else (binding_stream(effect.binding),)
        streams = (*own, *effect.data["streams"], *_scheduled_streams(effect))
        precondition = Precondition(effect=done)
        return Command(
            actor=self.owner, streams=streams, decide=decide, cause=effect.position, precondition=precondition
        )


def _only_unbound(binding: str, states: States) -> list[str]:
    """The streams of a binding's written volumes, once only their completion is left to do.

    A bound claim stays bound, even if its binding fails. So none is bound while another leg may still fail: one
    that is not written yet, that a provisioner creates, or that another binding writes.
    """
    state = states.get(binding_stream(binding))
    legs = [leg for leg in state.legs if leg.state != LegPhase.BOUND] if isinstance(state, BindingState) else []
    if any(leg.state != LegPhase.WRITTEN or leg.dynamic for leg in legs):
        return []
    return [f"volume/{leg.volume}" for leg in legs]


def _retry_after(error: Exception) -> int:
    """The cluster's Retry-After, in microseconds."""
    seconds = error.retry_after if isinstance(error, UnansweredError) else None
    return int((seconds or 0) * SECOND)


def _leg(effect: Claimed) -> int:
    return int(effect.data.get("leg", 0))


def _scheduled_streams(effect: Claimed) -> tuple[str, ...]:
    """The streams that report the pod's node, for an effect that binds a pod."""
    if effect.kind != BIND_POD:
        return ()
    pods = (stream for stream in effect.data["streams"] if stream.startswith("pod/"))
    return tuple(scheduled_stream(stream.removeprefix("pod/"), effect.binding or "") for stream in pods)


def _recorded(effect: Claimed, outcome: Outcome | None, states: States, now: int) -> Decision:
    binding = effect.binding or ""
    if outcome is None:
        return NOTHING
    if isinstance(outcome, NominationOutcome):
        return record_nomination(binding, outcome.reason, states) if effect.kind == NOMINATE else NOTHING
    if isinstance(outcome, LegOutcome) and effect.kind == UNDO:
        return record_undone(binding, _leg(effect), outcome, states)
    if isinstance(outcome, LegOutcome):
        return record_leg(binding, _leg(effect), outcome, states)
    recorded, state = record_pod(binding, outcome, states), states.get(binding_stream(binding))
    if not outcome.bound or outcome.stays_free or not recorded.events or not isinstance(state, BindingState):
        return recorded
    (stream,) = _scheduled_streams(effect)
    told = scheduled_event(state.plan, stream, binding=binding, now=rfc3339(now))
    return replace(recorded, events=(told, *recorded.events))


def _patched(state: State, step: EffectWrite) -> State:
    assert isinstance(state, ObjectState)
    return state._replace(manifest=merged(state.manifest or {}, step.patch))
