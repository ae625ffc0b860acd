"""After a crash: every open binding is looked at, missing work is queued again, passed deadlines are acted on.

The views hold all that is needed; the history is read only for the bindings that are open. Any process may do it
at its start, one at a time does, and doing it twice changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.saga import advance, context_of, effects_of, open_binding, time_out
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.decision import Decision, NewEffect, States
from volsched.log.events.fold import BindingState
from volsched.log.events.object_states import binding_stream
from volsched.log.leases import acquire, release
from volsched.log.reads.open_bindings import known_effects, open_bindings, parked_effects, surroundings
from volsched.log.reads.startup import check_head
from volsched.log.reads.tail import state_as_of
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.runtime.fault_points import reach

LEASE_NAME = "recovery"
LEASE_TTL = 30 * SECOND
PAGE = 200
EVERY_PARKED = 10_000


class Recovered(StrEnum):
    RESUMED = "resumed"
    """Its work is queued and goes on."""
    ADVANCED = "advanced"
    """It could take its next step at once."""
    ROLLED_BACK = "rolled back"
    """It is being undone, or just was."""
    NEEDS_HUMAN = "needs a human"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredBinding:
    """What was found of one binding that was in flight, and what was done about it."""

    binding: str
    pod: str
    node: str
    phase: str
    outcome: Recovered
    queued: tuple[str, ...] = ()
    """Effects that were missing and are queued again."""
    detail: str = ""


@dataclass(slots=True)
class RecoveryReport:
    position: int
    dry_run: bool
    found: list[RecoveredBinding] = field(default_factory=list)
    led: bool = True
    """False: another process recovers this very moment, so nothing was done."""

    def count(self, outcome: Recovered) -> int:
        return sum(it.outcome is outcome for it in self.found)


def recover(database: Database, *, owner: str, now: int, dry_run: bool = False) -> RecoveryReport:
    """Raises IntegrityBrokenError where the head is not the log's last event: then nothing may go on."""
    with database.read() as connection:
        report = RecoveryReport(check_head(connection), dry_run)
    if dry_run:
        _look_at_all(database, report, owner, now)
        return report
    lease = acquire(database, name=LEASE_NAME, holder=owner, now=now, ttl=LEASE_TTL)
    if lease is None:
        report.led = False
        return report
    reach("recovery.begun")
    try:
        _look_at_all(database, report, owner, now)
    finally:
        release(database, lease)
    reach("recovery.done")
    return report


def _look_at_all(database: Database, report: RecoveryReport, owner: str, now: int) -> None:
    after = ""
    with database.read() as connection:
        parked = {it.binding: it for it in parked_effects(connection, limit=EVERY_PARKED)}
        page = open_bindings(connection, limit=PAGE)
    while page:
        for binding in page:
            found = _look_at(database, binding, report.dry_run, owner, now)
            if found is not None and binding in parked:
                it = parked[binding]
                remedy = f"volsched effects retry {it.key}"
                found = replace(found, outcome=Recovered.NEEDS_HUMAN, detail=f"{it.key}: {it.error}; {remedy}")
            if found is not None:
                report.found.append(found)
        after = page[-1]
        with database.read() as connection:
            page = open_bindings(connection, after=after, limit=PAGE)


def _look_at(database: Database, binding: str, dry_run: bool, owner: str, now: int) -> RecoveredBinding | None:
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
    found = RecoveredBinding(
        binding=binding, pod=plan["pod"], node=plan["node"], phase=state.state, outcome=Recovered.RESUMED
    )
    if not isinstance(folded, BindingState) or (folded.state, folded.legs) != (state.state, state.legs):
        detail = "its row is not what its events say; run: volsched rebuild"
        return replace(found, outcome=Recovered.NEEDS_HUMAN, detail=detail)
    lost = tuple(_again(effect, state, key in done) for key, effect in needed.items() if key not in queued)

    def decide(now_states: States) -> Decision:
        step = time_out(binding, now, now_states)
        step = step if step.events else advance(binding, now_states)
        # What moves on brings its own work; only what stays where it is may lack some.
        return step if step.events else Decision(effects=lost)

    step = decide(states)
    if not dry_run and (step.events or step.effects):
        streams = (stream, *context_of(state, states))
        (outcome,) = execute(database, [Command(actor=owner, streams=streams, decide=decide)], now=now)
        if isinstance(outcome, Exception):
            return replace(found, outcome=Recovered.NEEDS_HUMAN, detail=f"it could not be resumed: {outcome}")
    return replace(found, outcome=_outcome(state, step), queued=tuple(effect.key for effect in step.effects))


def _again(effect: NewEffect, state: BindingState, done: bool) -> NewEffect:
    """A key is used once; work that was recorded as done and is needed all the same gets another."""
    return replace(effect, key=f"{effect.key}/again-{state.version}") if done else effect


def _outcome(state: BindingState, step: Decision) -> Recovered:
    phases: Iterable[str] = (event.data["state"] for event in step.events if event.type == "BindingMoved")
    if state.state == Phase.COMPENSATING or Phase.COMPENSATING in phases:
        return Recovered.ROLLED_BACK
    return Recovered.ADVANCED if step.events else Recovered.RESUMED
