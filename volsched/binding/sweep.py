"""The sweep: what nobody was woken for. Deadlines, work that was given up, and bindings that could have moved on.

Everything here is found with a query and carried out as a command, so a waiting binding holds no worker and no
timer: its deadline is a column. Bindings are advanced by the event that concerns them; that they are looked at
here too, some hundred a second, is a backstop.
"""

from dataclasses import dataclass, replace
from functools import partial

from volsched.binding.rules.late_writes import undoing
from volsched.binding.rules.phases import LegPhase
from volsched.binding.rules.saga import (
    BIND_POD,
    OPERATOR,
    RELEASE,
    PodOutcome,
    advance,
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
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import State
from volsched.log.events.object_states import binding_stream, manifest_of
from volsched.log.reactions import Reaction
from volsched.log.reads.open_bindings import (
    Parked,
    next_deadline,
    open_bindings,
    overdue_bindings,
    parked_effects,
    surroundings,
)
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.runtime.fault_points import reach

PAGE = 200
"""Bindings looked at, and overdue ones ended, in one step."""
CANCELLED = "cancelled"


@dataclass(slots=True)
class Sweep:
    database: Database
    owner: str
    react: Reaction = advance
    _after: str = ""

    def step(self, now: int) -> int:
        """One look around; answers how much was set in motion."""
        return self.look_at_waiting(now) + self.end_parked(now)

    def look_at_waiting(self, now: int) -> int:
        """Time out what is overdue, and move what could have moved on."""
        with self.database.read() as connection:
            late = overdue_bindings(connection, now=now, limit=PAGE)
            page = open_bindings(connection, after=self._after, limit=PAGE, planned_before=now - SECOND)
        self._after = page[-1] if len(page) == PAGE else ""
        commands = [self._command(binding, partial(time_out, binding, now)) for binding in late]
        commands += self._movable(page)
        if commands:
            reach("sweep.found")
        return sum(_has_moved(outcome) for outcome in execute(self.database, commands, now=now, react=self.react))

    def end_parked(self, now: int) -> int:
        """Let bindings end without the work that was given up.

        Not before the binding has failed or its deadline has passed: until then somebody may retry it.
        """
        with self.database.read() as connection:
            parked = parked_effects(connection, limit=PAGE, hopeless_at=now)
        return sum(self.give_up(it, now) for it in parked)

    def next_due(self) -> int | None:
        with self.database.read() as connection:
            return next_deadline(connection)

    def give_up(self, parked: Parked, now: int) -> bool:
        """Let the binding of a parked effect end without it: the write is undone if it happened after all."""
        execute(self.database, [self._command(parked.binding, _surrender(parked))], now=now, react=self.react)
        return cancel(self.database, key=parked.key, outcome=CANCELLED, now=now)

    def cancel(self, parked: Parked, now: int, *, why: str | None = None) -> None:
        """An operator's word: the binding fails if it has not yet, and ends without the effect."""
        reason = OPERATOR if why is None else f"{OPERATOR}: {why}"
        failing = self._command(parked.binding, partial(fail, parked.binding, reason))
        noting = self._command(parked.binding, _noting(parked, "cancelled", why))
        execute(self.database, [noting, failing], now=now, react=self.react)
        self.give_up(parked, now)

    def retry(self, parked: Parked, now: int, *, why: str | None = None) -> bool:
        """An operator's word: the effect is due at once, with all its attempts anew; False if it is not parked."""
        noting = self._command(parked.binding, _noting(parked, "retried", why))
        execute(self.database, [noting], now=now, react=self.react)
        return unpark(self.database, key=parked.key, now=now)

    def _movable(self, bindings: list[str]) -> list[Command]:
        """Those that would move if somebody looked; found without any lock."""
        states = self._surroundings(bindings)
        return [self._command(it, partial(self.react, it)) for it in bindings if self.react(it, states).events]

    def _command(self, binding: str, decide: "partial[Decision]") -> Command:
        streams = self._surroundings([binding])
        return Command(actor=self.owner, streams=(binding_stream(binding), *streams), decide=decide)

    def _surroundings(self, bindings: list[str]) -> dict[str, State]:
        with self.database.read() as connection:
            return surroundings(self.database, connection, bindings)


def _surrender(parked: Parked) -> "partial[Decision]":
    if parked.kind == BIND_POD:
        return partial(record_pod, parked.binding, PodOutcome(bound=False, reason=f"given up: {parked.error}"))
    if parked.kind == RELEASE:
        return partial(_retain_undecided, parked.binding, int(parked.leg), parked.error)
    return partial(give_up_write, parked.binding, int(parked.leg))


def _noting(parked: Parked, done: str, why: str | None) -> "partial[Decision]":
    """Effects stand beside the log, so that what people do with them is said in the log of their own binding."""
    data = {"effect": parked.key, "done": done} | ({} if why is None else {"reason": why})
    stream, binding = binding_stream(parked.binding), parked.binding
    return partial(_append, NewEvent(stream=stream, type="EffectNoted", data=data, binding=binding))


def _append(event: NewEvent, _: States) -> Decision:
    return Decision(events=(event,))


def _retain_undecided(binding: str, index: int, why: str, states: States) -> Decision:
    """A release that was given up may have left its mark on the claim, and nobody would look at that again."""
    decision = give_up_release(binding, index, why, states)
    state = open_binding(binding, states)
    if state is None or not decision.events:
        return decision
    legs = tuple(it._replace(state=LegPhase.RETAINED) if i == index else it for i, it in enumerate(state.legs))
    settled = {**states, binding_stream(binding): state._replace(legs=legs)}
    stream = f"claim/{state.legs[index].claim}"
    claim = manifest_of(states, stream)
    left = () if claim is None or "resourceVersion" not in metadata(claim) else undoing(stream, claim, settled)
    return replace(decision, effects=(*decision.effects, *left))


def _has_moved(outcome: object) -> bool:
    return isinstance(outcome, Done) and outcome.events > 0
