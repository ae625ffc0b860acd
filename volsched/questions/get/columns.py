"""The columns of `get`, by kind: those that kubectl's users know, and with `wide` what only we can tell.

Pure: a column is a function of what is stored and of the time at which it is looked at.
"""

from collections.abc import Callable, Mapping

from volsched.log.events.fold import AttemptState, BindingState
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.questions.get.cells import AGE, NAME, NONE, Column, Item, age, listed, shown
from volsched.questions.get.storage_columns import STORAGE_COLUMNS
from volsched.questions.get.stored_columns import STORED_COLUMNS
from volsched.questions.get.workload_columns import WORKLOAD_COLUMNS
from volsched.runtime.clock import rfc3339


def columns_of(noun: str, *, wide: bool) -> list[Column]:
    # What is served but never there has a name and an age, like everything.
    return [column for column in COLUMNS.get(noun, (NAME, AGE)) if wide or not column.wide]


def _of_binding(cell: Callable[[BindingState, int], str]) -> Callable[[Item], str]:
    return lambda item: cell(item.state, item.now) if isinstance(item.state, BindingState) else ""


def _of_attempt(cell: Callable[[AttemptState, int], str]) -> Callable[[Item], str]:
    return lambda item: cell(item.state, item.now) if isinstance(item.state, AttemptState) else ""


def _legs(state: BindingState) -> str:
    return listed(f"{leg.claim.rpartition('/')[2]}→{leg.volume or '?'}:{leg.state}" for leg in state.legs)


def _deadline(state: BindingState) -> str:
    deadline = state.plan.get("deadline")
    return NONE if deadline is None else rfc3339(deadline)


def _pod_name(pod: object) -> str:
    return str(pod).rpartition("/")[2]


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    **STORAGE_COLUMNS,
    **WORKLOAD_COLUMNS,
    **STORED_COLUMNS,
    BINDING: (
        NAME,
        Column("POD", _of_binding(lambda it, _: _pod_name(it.plan["pod"]))),
        Column("NODE", _of_binding(lambda it, _: str(it.plan["node"]))),
        Column("STATE", _of_binding(lambda it, _: it.state)),
        Column("LEGS", _of_binding(lambda it, _: str(len(it.legs)))),
        Column("AGE", _of_binding(lambda it, now: age(it.planned_at, now))),
        Column("VOLUMES", _of_binding(lambda it, _: _legs(it)), wide=True),
        Column("DEADLINE", _of_binding(lambda it, _: _deadline(it)), wide=True),
        Column("REASON", _of_binding(lambda it, _: it.reason or NONE), wide=True),
    ),
    ATTEMPT: (
        NAME,
        Column("POD", _of_attempt(lambda it, _: _pod_name(it.made["pod"]))),
        Column("OUTCOME", _of_attempt(lambda it, _: str(it.made["outcome"]))),
        Column("NODE", _of_attempt(lambda it, _: shown(it.made.get("node")))),
        Column("COUNT", _of_attempt(lambda it, _: str(it.times))),
        Column("LAST SEEN", _of_attempt(lambda it, now: age(it.last_at, now))),
        Column("MESSAGE", _of_attempt(lambda it, _: shown(it.made["detail"].get("message")))),
        Column("DECIDED AT", _of_attempt(lambda it, _: str(it.decided_at)), wide=True),
        Column("DECIDER", _of_attempt(lambda it, _: str(it.made["decider"])), wide=True),
    ),
}
"""Noun → its columns, in kubectl's order; ours stand last."""
