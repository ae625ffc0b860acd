"""Recovery after a crash, and the sweep every second: open bindings, missing work, deadlines, parked work."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from volsched.binding.rules.effects import BIND_POD, NOMINATE, RELEASE, UNNOMINATE, PodOutcome, effects_of
from volsched.binding.rules.late_writes import undoing
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.binding.rules.reasons import OPERATOR, given_up
from volsched.binding.rules.saga import (
    advance,
    context_of,
    fail,
    give_up_release,
    give_up_write,
    open_binding,
    record_pod,
    time_out,
)
from volsched.kube.manifest import metadata
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.effects import cancel, unpark
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import (
    NOTHING,
    BindingState,
    Decision,
    NewEffect,
    State,
    States,
    binding_stream,
    manifest_of,
)
from volsched.log.leases import acquire, release
from volsched.log.reactions import Reaction
from volsched.log.reads.open_bindings import (
    Parked,
    known_effects,
    next_deadline,
    open_bindings,
    overdue_bindings,
    parked_effects,
    surroundings,
)
from volsched.log.reads.startup import check_head
from volsched.log.reads.tail import state_as_of
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.runtime.fault_points import reach

# The views hold everything needed; history is read only for open bindings. Any process may recover at its
# start; a lease admits one at a time, and recovery is idempotent.

LEASE_NAME = "recovery"
LEASE_TTL = 30 * SECOND
PAGE = 200
EVERY_PARKED = 10_000


class Recovered(StrEnum):
    RESUMED = "resumed"
    """The binding's work is queued and continues."""
    ADVANCED = "advanced"
    """The binding's next step was taken at once."""
    ROLLED_BACK = "rolled back"
    """The binding is being rolled back, or was rolled back just now."""
    NEEDS_HUMAN = "needs a human"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredBinding:
    """One binding that was in flight, and recovery's action on it."""

    binding: str
    pod: str
    node: str
    phase: str
    outcome: Recovered
    queued: tuple[str, ...] = ()
    """Missing effects that were queued again."""
    detail: str = ""


@dataclass(slots=True)
class RecoveryReport:
    position: int
    dry_run: bool
    bindings: list[RecoveredBinding] = field(default_factory=list)
    led: bool = True
    """Whether this process led the recovery; False: another is recovering now, and nothing was done."""

    def count(self, outcome: Recovered) -> int:
        return sum(it.outcome is outcome for it in self.bindings)


def recover(database: Database, *, owner: str, now: int, dry_run: bool = False) -> RecoveryReport:
    """Recover open bindings. Raises IntegrityBrokenError if the head is not the log's last event."""
    with database.read() as connection:
        report = RecoveryReport(check_head(connection), dry_run)
    if dry_run:
        _examine_all(database, report, owner, now)
        return report
    lease = acquire(database, name=LEASE_NAME, holder=owner, now=now, ttl=LEASE_TTL)
    if lease is None:
        report.led = False
        return report
    reach("recovery.begun")
    try:
        _examine_all(database, report, owner, now)
    finally:
        release(database, lease)
    reach("recovery.done")
    return report


def _examine_all(database: Database, report: RecoveryReport, owner: str, now: int) -> None:
    after = ""
    with database.read() as connection:
        parked = {effect.binding: effect for effect in parked_effects(connection, limit=EVERY_PARKED)}
        page = open_bindings(connection, limit=PAGE)
    while page:
        for binding in page:
            recovered = _examine(database, binding, report.dry_run, owner, now)
            if recovered is not None and binding in parked:
                effect = parked[binding]
                remedy = f"volsched effects retry {effect.key}"
                recovered = replace(
                    recovered, outcome=Recovered.NEEDS_HUMAN, detail=f"{effect.key}: {effect.error}; {remedy}"
                )
            if recovered is not None:
                report.bindings.append(recovered)
        after = page[-1]
        with database.read() as connection:
            page = open_bindings(connection, after=after, limit=PAGE)


def _examine(database: Database, binding: str, dry_run: bool, owner: str, now: int) -> RecoveredBinding | None:
    stream = binding_stream(binding)
    with database.read() as connection:
        states = surroundings(database, connection, [binding])
        state = open_binding(binding, states)
        if state is None:
            return None
        folded = state_as_of(connection, stream, position=2**62)
        needed = {effect.key: effect for effect in effects_of(binding, state)}
        queued, done = known_effects(database, connection, needed)
    plan = state.plan
    recovered = RecoveredBinding(
        binding=binding, pod=plan["pod"], node=plan["node"], phase=state.state, outcome=Recovered.RESUMED
    )
    if not isinstance(folded, BindingState) or (folded.state, folded.legs) != (state.state, state.legs):
        detail = "its row differs from its events; run: volsched rebuild"
        return replace(recovered, outcome=Recovered.NEEDS_HUMAN, detail=detail)
    lost = tuple(_again(effect, state, key in done) for key, effect in needed.items() if key not in queued)

    def decide(now_states: States) -> Decision:
        step = time_out(binding, now, now_states)
        step = step if step.events else advance(binding, now_states)
        # A step queues its own work; only a binding that does not move can miss work.
        return step if step.events else Decision(effects=lost)

    step = decide(states)
    if not dry_run and (step.events or step.effects):
        streams = (stream, *context_of(state, states))
        (outcome,) = execute(database, [Command(actor=owner, streams=streams, decide=decide)], now=now)
        if isinstance(outcome, Exception):
            return replace(recovered, outcome=Recovered.NEEDS_HUMAN, detail=f"it could not be resumed: {outcome}")
    return replace(recovered, outcome=_outcome(state, step), queued=tuple(effect.key for effect in step.effects))


def _again(effect: NewEffect, state: BindingState, done: bool) -> NewEffect:
    """The effect to queue again. A key is used once; work recorded as done but still needed gets a new key."""
    return replace(effect, key=f"{effect.key}/again-{state.version}") if done else effect


def _outcome(state: BindingState, step: Decision) -> Recovered:
    phases: Iterable[str] = (event.data["state"] for event in step.events if event.type == "BindingMoved")
    if state.state == Phase.COMPENSATING or Phase.COMPENSATING in phases:
        return Recovered.ROLLED_BACK
    return Recovered.ADVANCED if step.events else Recovered.RESUMED


# The sweep: deadlines, parked work, and bindings that could have moved on without an event to trigger them.
#
# All work is found with a query and carried out as a command, so a waiting binding holds no worker and no timer:
# its deadline is a column. Bindings are advanced by the events that concern them; the sweep checks some hundred
# per second as a backstop.

CANCELLED = "cancelled"


@dataclass(slots=True)
class Sweep:
    database: Database
    owner: str
    react: Reaction = advance
    _after: str = ""

    def step(self, now: int) -> int:
        """One sweep; returns the number of bindings moved and effects given up."""
        return self.examine_waiting(now) + self.end_parked(now)

    def examine_waiting(self, now: int) -> int:
        """Time out overdue bindings, and advance those that can move."""
        with self.database.glance() as connection:
            late = overdue_bindings(connection, now=now, limit=PAGE)
            page = open_bindings(connection, after=self._after, limit=PAGE, planned_before=now - SECOND)
        self._after = page[-1] if len(page) == PAGE else ""
        commands = [self._command(binding, partial(time_out, binding, now)) for binding in late]
        commands += self._movable(page)
        if commands:
            reach("sweep.found")
        return sum(_has_moved(outcome) for outcome in execute(self.database, commands, now=now, react=self.react))

    def end_parked(self, now: int) -> int:
        """Let bindings end without their parked work.

        Only after the binding has failed or its deadline has passed: until then an operator may retry the work.
        """
        with self.database.glance() as connection:
            parked = parked_effects(connection, limit=PAGE, hopeless_at=now)
        return sum(self.give_up(it, now) for it in parked)

    def next_due(self) -> int | None:
        with self.database.read() as connection:
            return next_deadline(connection)

    def give_up(self, parked: Parked, now: int) -> bool:
        """Let the binding of a parked effect end without it; a write that did happen is undone."""
        execute(self.database, [self._command(parked.binding, _surrender(parked))], now=now, react=self.react)
        return cancel(self.database, key=parked.key, outcome=CANCELLED, now=now)

    def cancel(self, parked: Parked, now: int, *, why: str | None = None) -> None:
        """For operators: the binding fails if it has not yet, and ends without the effect."""
        reason = OPERATOR if why is None else f"{OPERATOR}: {why}"
        failing = self._command(parked.binding, partial(fail, parked.binding, reason))
        noting = self._command(parked.binding, _noting(parked, "cancelled", why))
        execute(self.database, [noting, failing], now=now, react=self.react)
        self.give_up(parked, now)

    def cancel_binding(self, binding: str, now: int, *, why: str) -> bool:
        """For operators: the binding fails and is undone; False if it has ended, or is committing already."""
        failing = self._command(binding, partial(fail, binding, f"{OPERATOR}: {why}"))
        (outcome,) = execute(self.database, [failing], now=now, react=self.react)
        return _has_moved(outcome)

    def retry(self, parked: Parked, now: int, *, why: str | None = None) -> bool:
        """For operators: the effect is due at once, with its attempts reset; False if it is not parked."""
        noting = self._command(parked.binding, _noting(parked, "retried", why))
        execute(self.database, [noting], now=now, react=self.react)
        return unpark(self.database, key=parked.key, now=now)

    def _movable(self, bindings: list[str]) -> list[Command]:
        """The commands for the bindings that can move; read without a lock."""
        states = self._surroundings(bindings) if bindings else {}
        return [self._command(it, partial(self.react, it)) for it in bindings if self.react(it, states).events]

    def _command(self, binding: str, decide: "partial[Decision]") -> Command:
        streams = self._surroundings([binding])
        return Command(actor=self.owner, streams=(binding_stream(binding), *streams), decide=decide)

    def _surroundings(self, bindings: list[str]) -> dict[str, State]:
        with self.database.read() as connection:
            return surroundings(self.database, connection, bindings)


def _surrender(parked: Parked) -> "partial[Decision]":
    if parked.kind == BIND_POD:
        return partial(record_pod, parked.binding, PodOutcome(bound=False, reason=given_up(parked.error)))
    if parked.kind in (NOMINATE, UNNOMINATE):
        return partial(_do_nothing)
    if parked.kind == RELEASE:
        return partial(_retain_undecided, parked.binding, int(parked.leg), parked.error)
    return partial(give_up_write, parked.binding, int(parked.leg))


def _noting(parked: Parked, done: str, why: str | None) -> "partial[Decision]":
    """Log an operator's action on an effect in its binding's stream: effects are not part of the log."""
    data = {"effect": parked.key, "done": done} | ({} if why is None else {"reason": why})
    stream, binding = binding_stream(parked.binding), parked.binding
    return partial(_append, NewEvent(stream=stream, type="EffectNoted", data=data, binding=binding))


def _do_nothing(_: States) -> Decision:
    """End a nomination: it is only shown, and nothing depends on it once its binding has ended."""
    return NOTHING


def _append(event: NewEvent, _: States) -> Decision:
    return Decision(events=(event,))


def _retain_undecided(binding: str, index: int, why: str, states: States) -> Decision:
    """Retain the leg, and remove a mark that the parked release left on the claim: no other process would."""
    decision = give_up_release(binding, index, why, states)
    state = open_binding(binding, states)
    if state is None or not decision.events:
        return decision
    given_up = state.legs[index]._replace(state=LegPhase.RETAINED, written_rv=None)
    legs = tuple(given_up if i == index else leg for i, leg in enumerate(state.legs))
    settled = {**states, binding_stream(binding): state._replace(legs=legs)}
    stream = f"claim/{state.legs[index].claim}"
    claim = manifest_of(states, stream)
    left = () if claim is None or "resourceVersion" not in metadata(claim) else undoing(stream, claim, settled)
    return replace(decision, effects=(*decision.effects, *left))


def _has_moved(outcome: object) -> bool:
    return isinstance(outcome, Done) and outcome.events > 0
