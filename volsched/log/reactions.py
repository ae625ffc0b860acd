"""Reactions to events in their own transaction: bindings move on, and failed ones are reported to their pods."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import CompoundSelect, Connection, bindparam, select, text, union

from volsched.binding.rules.failures import BindingFailure, failure_event, foreign_pod_notices, pod_notices
from volsched.binding.rules.saga import context_of, fail, goes_on
from volsched.kube.manifest import claim_of
from volsched.log import tables
from volsched.log.batch import Batch, load, stage
from volsched.log.database import Database
from volsched.log.dialects import Dialect
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import REACTION, Event
from volsched.log.events.fold import BindingState, Decision, ObjectState, States, manifest_of
from volsched.log.events.streams import BINDING
from volsched.objects.rules.object_events import SCHEDULER
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED
from volsched.runtime.clock import SECOND, rfc3339

# Reports failed bindings to pods in the transaction in which they fail, so that no crash can separate the two.

LATELY = 300 * SECOND
"""A provisioner's unchanged message is recorded only this often, so each record counts that much longer."""
_notices = tables.notices


def report_failures(
    database: Database, connection: Connection, batch: Batch, *, actor: str, since: int = 0
) -> None:
    """Store the reason of every decision that this transaction gives up, with its attempt and on the pod."""
    failures = list(_failures(batch, since))
    if not failures:
        return
    load(database, connection, batch, (stream for _, it in failures for stream in it.streams))
    words = _words(connection, batch, [it for _, it in failures])
    for position, failure in failures:
        stored = failure_event(failure, batch.states, words=words.get(failure.binding))
        if stored is not None:
            batch.take(*stage(batch, actor, (stored,), position), ())
        try:
            news = pod_notices(failure, batch.states, component=SCHEDULER, now=rfc3339(batch.now))
            events, states = stage(batch, actor, news, position)
        except Exception:
            # The pod's status cannot be extended. The failure is recorded whatever the pod looks like.
            continue
        batch.take(events, states, foreign_pod_notices(failure, batch.states))


def _failures(batch: Batch, since: int) -> Iterator[tuple[int, BindingFailure]]:
    """The failures, each with the position of the event that records it."""
    for event in islice(batch.events, since, None):
        # The text is searched first: nearly all moves are forward.
        if event.type != "BindingMoved" or '"stage"' not in event.data:
            continue
        data, state = orjson.loads(event.data), batch.states.get(event.stream)
        if isinstance(state, BindingState):
            binding = event.stream.partition("/")[2]
            yield (
                event.position,
                BindingFailure(binding, state, data["stage"], data.get("reason") or "", data.get("leg")),
            )


def _words(connection: Connection, batch: Batch, failures: Iterable[BindingFailure]) -> dict[str, str]:
    """Binding → the provisioner's last message about the claim whose leg failed."""
    waiting = {it.binding: it for it in failures if it.leg is not None and it.leg.dynamic}
    if not waiting:
        return {}
    claims = {f"PersistentVolumeClaim/{it.leg.claim}" for it in waiting.values() if it.leg is not None}
    select_ = select(_notices.c.manifest).where(
        _notices.c.about.in_(claims), _notices.c.reason == PROVISIONING_FAILED
    )
    stored = [orjson.loads(row.manifest) for row in connection.execute(select_)]
    fresh = (it.manifest for it in batch.states.values() if isinstance(it, ObjectState))
    said = [*stored, *(it for it in fresh if it is not None and it.get("reason") == PROVISIONING_FAILED)]
    return {binding: found for binding, it in waiting.items() if (found := _last_message(it, said)) is not None}


def _last_message(failure: BindingFailure, notices: Iterable[Mapping[str, Any]]) -> str | None:
    leg, since = failure.leg, rfc3339(failure.state.planned_at - LATELY)
    assert leg is not None
    about = [
        (_last_time(it), str(it.get("message") or it.get("note") or ""))
        for it in notices
        if (it.get("involvedObject") or {}).get("uid") == leg.claim_uid
    ]
    time, message = max(about, default=("", ""))
    return message if message and time >= since else None


def _last_time(notice: Mapping[str, Any]) -> str:
    times = (notice.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return str(next((it for it in times if it), ""))


Reaction = Callable[[str, States], Decision]
_FACTS = frozenset(
    entry.name
    for entry in CATALOGUE.values()
    if entry.change
    in (StateChange.CREATE, StateChange.PATCH, StateChange.DELETE, StateChange.MOVE_BINDING, StateChange.MOVE_LEG)
)
"""Events that may have reactions. A plan or an assumption changes nothing beside its plan."""


_OPEN = text("open")
_legs, _bindings = tables.binding_legs.c, tables.bindings.c
_TOUCHED_BY = (
    ("claim", _legs.claim, tables.OPEN_OWNER),
    ("claim", _legs.claim, tables.OPEN_JOINED),
    ("volume", _legs.volume, tables.OPEN_STATIC),
    ("binding", _legs.joins, tables.OPEN_JOINED),
    ("pod", _bindings.pod, _OPEN),
    ("node", _bindings.node, _OPEN),
)
"""The bindings or legs that a change of a noun's streams touches: the column that names it, and a condition."""


def react_to(database: Database, connection: Connection, batch: Batch, react: Reaction, *, since: int = 0) -> None:
    """Let every open binding that these events touch move on, in the transaction of the events themselves.

    `since`: how many events of the transaction have had their reactions.
    """
    new = islice(batch.events, since, None)
    fresh = {event.stream: event.position for event in new if _is_fact(batch, event)}
    while fresh:
        touched = [stream.partition("/")[2] for stream in fresh if stream.startswith(f"{BINDING}/")]
        looked_at = (*fresh, *_reserved_for(batch, fresh))
        batch.looked_at.update(looked_at)
        bindings = {*touched, *touching_bindings(database, connection, looked_at)}
        bindings |= {
            stream.partition("/")[2]
            for stream, state in batch.states.items()
            if isinstance(state, BindingState) and any(it in fresh for it in context_of(state, batch.states))
        }
        load(database, connection, batch, (f"{BINDING}/{binding}" for binding in bindings))
        for _ in range(2):
            # Twice: only a loaded claim shows which volume was provisioned for it.
            states = (batch.states.get(f"{BINDING}/{binding}") for binding in bindings)
            open_ = [state for state in states if isinstance(state, BindingState) and state.open]
            load(database, connection, batch, (it for state in open_ for it in context_of(state, batch.states)))
        following: dict[str, int] = {}
        for binding in sorted(bindings):
            last = _advance(batch, binding, fresh, react)
            if last is not None:
                following[f"{BINDING}/{binding}"] = last
        # A binding's result matters only to the bindings that joined it.
        fresh = following
    report_failures(database, connection, batch, actor=REACTION, since=since)


def _is_fact(batch: Batch, event: Event) -> bool:
    """Whether the event may have reactions. A plan has some only if it has nothing to write."""
    state = batch.states[event.stream]
    if event.type in _FACTS or not isinstance(state, BindingState):
        return event.type in _FACTS
    return not any(leg.owner for leg in state.legs)


def _advance(batch: Batch, binding: str, fresh: Mapping[str, int], react: Reaction) -> int | None:
    """Move a binding as far as possible; returns the position of its last event, if it moved."""
    last = None
    while (decision := _reaction(batch, binding, react)).events:
        cause = last
        if cause is None:
            state = batch.states[f"{BINDING}/{binding}"]
            assert isinstance(state, BindingState)
            known = (f"{BINDING}/{binding}", *context_of(state, batch.states))
            cause = max((fresh[stream] for stream in known if stream in fresh), default=None)
        events, states = stage(batch, REACTION, decision.events, cause)
        batch.take(events, states, decision.effects)
        last = events[-1].position
        if not goes_on(batch.states.get(f"{BINDING}/{binding}")):
            break
    return last


def _reaction(batch: Batch, binding: str, react: Reaction) -> Decision:
    try:
        return react(binding, batch.states)
    except Exception as error:
        # The event must be recorded even if the binding's rules fail on it.
        return fail(binding, f"it cannot be judged: {type(error).__name__}: {error}", batch.states)


def _reserved_for(batch: Batch, streams: Iterable[str]) -> Iterator[str]:
    """The claims that these volumes name: at first only the volume shows that it was provisioned for a claim."""
    for stream in streams:
        manifest = manifest_of(batch.states, stream) if stream.startswith("volume/") else None
        claim = None if manifest is None else claim_of(manifest)
        if claim is not None:
            yield f"claim/{claim.get('namespace')}/{claim.get('name')}"


def touching_bindings(database: Database, connection: Connection, streams: Iterable[str]) -> set[str]:
    """The ids of open bindings that a change of one of these streams may affect."""
    keys: dict[str, list[str]] = {}
    for stream in streams:
        noun, _, key = stream.partition("/")
        keys.setdefault(noun, []).append(key)
    nouns = frozenset(keys.keys() & {noun for noun, _, _ in _TOUCHED_BY})
    if not nouns:
        return set()
    given = {noun: database.dialect.named(keys[noun]) for noun in nouns}
    return {row[0] for row in database.dialect.run(connection, _touching(database.dialect, nouns), given)}


@cache
def _touching(dialect: Dialect, nouns: frozenset[str]) -> CompoundSelect[Any]:
    """Built once for each combination of nouns: every transaction executes it."""
    return union(
        *(
            select(of.table.c.id if of.table is tables.bindings else of.table.c.binding).where(
                which, dialect.among_named(of, noun)
            )
            for noun, of, which in _TOUCHED_BY
            if noun in nouns
        )
    )


_AFTER = (
    select(tables.events).where(tables.events.c.position > bindparam("after")).order_by(tables.events.c.position)
)


def events_after(database: Database, connection: Connection, position: int) -> list[Event]:
    return [Event._make(row) for row in database.dialect.run(connection, _AFTER, {"after": position})]
