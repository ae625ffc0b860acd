"""The tables beside the log, checked against it: tokens, leases, idempotency results, done effects.

They are not a fold of the log: rows are renewed, expire, and are not restored by an import. But each of them
decides something: which caller is let in, which process may act, the answer to a repeat, which work is not
repeated. So a row is compared as far as the log records it; the rest is a gap that the report must state.

A missing row is no finding. Results and done effects expire. A token without its row is refused, and a lease
continues with the epoch of the log.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, select

from volsched.binding.rules.late_writes import KINDS, contradiction
from volsched.log import tables
from volsched.log.dialects import dialect_of
from volsched.log.errors import Finding
from volsched.log.events.fold import BindingState, LeaseState, State, TokenState, UnknownState
from volsched.log.events.streams import BINDING, LEASE, TOKEN
from volsched.log.tokens import all_tokens, differences

NEVER_ISSUED = "the token was never issued: the log has no event of it"
NOT_ISSUED_SO = "the token differs from the log"
NO_FINGERPRINT = (
    "{names}: issued by an earlier program, so the log cannot show that the hash is still the one that was issued;"
    " revoke and reissue the important ones"
)
NO_ISSUE = (
    "{names}: archived by an earlier program, and their rights are no longer in the log; they are refused until "
    "they are revoked and issued again; verify --archive FILE proves the rows"
)
EPOCH_USED = "the log has a later epoch: an earlier holder could act again"
NO_KEY = "{count} idempotency results of commands that leave no key in the log: not compared"
NO_BINDING = "the log has no reservation for the result"
OTHER_RESULT = "the result differs from the log"
NOT_DONE = "the effect is done and the log has no outcome of it: {why}"
RESERVATION = "reserve"
_SHOWN = 5

States = Mapping[str, State]


def reservation_key(pod: str, key: str) -> str:
    """The key that a reservation's result is kept under."""
    return f"{RESERVATION}/{pod.partition('/')[0]}/{key}"


def check_side_tables(connection: Connection, states: States, gaps: list[str]) -> Iterator[Finding]:
    """Every row that the log contradicts; columns that cannot be compared are added to `gaps`."""
    yield from _check_tokens(connection, states, gaps)
    yield from _check_leases(connection, states)
    yield from _check_results(connection, states, gaps)
    yield from _check_done(connection, states)


def _check_tokens(connection: Connection, states: States, gaps: list[str]) -> Iterator[Finding]:
    unmarked, unknown = list[str](), list[str]()
    for token in all_tokens(connection):
        recorded = states.get(f"{TOKEN}/{token.name}")
        if isinstance(recorded, UnknownState):
            unknown.append(token.name)
            continue
        if isinstance(recorded, TokenState) and recorded.fingerprint is None and recorded.revoked_at is None:
            unmarked.append(token.name)
        problem = NEVER_ISSUED if recorded is None else NOT_ISSUED_SO
        for column, expected, got in differences(token, recorded):
            yield Finding(
                problem=problem,
                table=tables.tokens.name,
                key=token.name,
                column=column,
                expected=expected,
                got=got,
            )
    gaps += [
        text.format(names=_named("token", names))
        for text, names in ((NO_FINGERPRINT, unmarked), (NO_ISSUE, unknown))
        if names
    ]


def _check_leases(connection: Connection, states: States) -> Iterator[Finding]:
    for name, epoch in connection.execute(select(tables.leases.c.name, tables.leases.c.epoch)):
        recorded = states.get(f"{LEASE}/{name}")
        if isinstance(recorded, LeaseState) and epoch < recorded.epoch:
            yield Finding(
                problem=EPOCH_USED,
                table=tables.leases.name,
                key=name,
                column="epoch",
                expected=recorded.epoch,
                got=epoch,
            )


def _check_results(connection: Connection, states: States, gaps: list[str]) -> Iterator[Finding]:
    unknown = 0
    for chunk in dialect_of(connection.engine).scan(connection, tables.commands, order="key"):
        for key, _, at, text in chunk:
            if not key.startswith(f"{RESERVATION}/"):
                unknown += 1
                continue
            result = _object(text)
            state = states.get(f"{BINDING}/{result.get('binding')}")
            if not isinstance(state, BindingState) or not state.plan.get("reserved"):
                got = result.get("binding")
                yield Finding(problem=NO_BINDING, table=tables.commands.name, key=key, column="result", got=got)
                continue
            plan = state.plan
            wanted_key = plan.get("key")
            unknown += wanted_key is None
            compared = (
                # A reservation without a key has no result at all.
                (
                    "key",
                    key
                    if wanted_key is None
                    else reservation_key(plan["pod"], wanted_key)
                    if wanted_key
                    else None,
                    key,
                ),
                ("at", state.planned_at, at),
                ("result", {"binding": result["binding"], "pod": plan["pod"]}, result),
            )
            for column, expected, got in compared:
                if expected != got:
                    yield Finding(
                        problem=OTHER_RESULT, table=tables.commands.name, key=key, column=column,
                        expected=expected, got=got,
                    )  # fmt: skip
    if unknown:
        gaps.append(NO_KEY.format(count=unknown))


def _check_done(connection: Connection, states: States) -> Iterator[Finding]:
    """Bindings that never existed are reported elsewhere (`integrity.verify`)."""
    done = tables.effects_done
    for chunk in dialect_of(connection.engine).scan(connection, done, order="key"):
        for key, _, _, kind, binding, _, outcome, *_ in chunk:
            state = states.get(f"{BINDING}/{binding}")
            if kind not in KINDS or not isinstance(state, BindingState):
                continue
            part, _, rest = key.removeprefix(f"{binding}/").partition("/")
            named = rest.partition("/")[0]
            if named != kind:
                yield Finding(
                    problem="the effect is of another kind than its key says", table=done.name, key=key,
                    column="kind", expected=named, got=kind,
                )  # fmt: skip
            elif (why := contradiction(kind, part, state)) is not None:
                problem = NOT_DONE.format(why=why)
                yield Finding(problem=problem, table=done.name, key=key, column="outcome", got=outcome)


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _named(noun: str, names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({shown})"
