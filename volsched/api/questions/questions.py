"""Questions to the history: the same functions, and the same JSON, as `volsched history`, `audit` and `diff`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection

from volsched.api.access.callers import current_caller
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import AnswerFormat
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.lists import page
from volsched.api.questions.operations import Context, OperationRequest
from volsched.api.questions.rows import rows
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.kind_names import Named, kind_called
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import AsOf, Look, Now
from volsched.log.reads.event_audit import Window, window
from volsched.log.reads.tail import event, read_head
from volsched.questions.audit import decisions, latency, reads
from volsched.questions.audit.answers import Answer as Page
from volsched.questions.audit.answers import UnknownError, time_text
from volsched.questions.audit.orphans import orphans_of
from volsched.questions.explain import attempts
from volsched.questions.get.cells import namespace_of
from volsched.questions.get.describe import described
from volsched.questions.get.documents import as_list, as_manifest
from volsched.questions.get.near_names import never_was, not_found
from volsched.questions.history import causes, history, volume_history
from volsched.questions.history.moments import MomentError, position_of, read_duration, window_of
from volsched.questions.history.world_diff import world_diff

MOMENT = "volsched-moment"
"""A header: the time of what is described, in microseconds since 1970."""
Question = Callable[[Connection, OperationRequest, Window], Page]


def _paged(ask: Question) -> Callable[[Context, OperationRequest], HttpAnswer]:
    """A question about a part of the history, a page at a time."""

    def serve(context: Context, asked: OperationRequest) -> HttpAnswer:
        with context.services.database.read() as connection:
            return page(ask(connection, asked, _window(connection, asked)))

    return serve


def _window(connection: Connection, asked: OperationRequest) -> Window:
    return window_of(
        connection,
        since=asked.text("since"),
        until=asked.text("until"),
        as_of=asked.text("asOf"),
        now=asked.now,
    )


def _rest(asked: OperationRequest) -> dict[str, Any]:
    return {"after": asked.text("continue"), "limit": asked.query["limit"]}


def _named(asked: OperationRequest) -> Named:
    named = kind_called(asked.path["kind"])
    if named.is_object and named.namespaced != (asked.namespace is not None):
        where = "in a namespace: /namespaces/NAMESPACE/…" if named.namespaced else "in no namespace"
        raise ApiError(404, f"{named.plural} are {where}")
    if not named.is_object and asked.namespace is not None and "name" in asked.path:
        # By its id alone it could be of any namespace: who is let into one must not read of another.
        raise ApiError(404, f"{named.plural} are asked for in no namespace")
    return named


def _key(named: Named, asked: OperationRequest) -> str:
    name = asked.path["name"]
    return f"{asked.namespace}/{name}" if named.is_object and named.namespaced else name


def _history(connection: Connection, asked: OperationRequest, within: Window) -> Page:
    named = _named(asked)
    if named.noun == BINDING:
        return history.of_binding(connection, asked.path["name"], within, **_rest(asked))
    key = _key(named, asked)
    with _known(connection, named, key, asked):
        return history.history(connection, f"{named.noun}/{key}", within, **_rest(asked))


def _who(connection: Connection, asked: OperationRequest, within: Window) -> Page:
    named = _named(asked)
    key = _key(named, asked)
    with _known(connection, named, key, asked):
        return history.changes(connection, f"{named.noun}/{key}", within, **_rest(asked))


def _attempts(connection: Connection, asked: OperationRequest, within: Window) -> Page:
    pod = f"{asked.namespace}/{asked.path['name']}"
    found = attempts.attempts_of(connection, pod, within, **_rest(asked))
    if not found.items:
        _refuse_unknown(connection, kind_called("pod"), pod, asked)
    return found


def _claims_of(connection: Connection, asked: OperationRequest, within: Window) -> Page:
    name = asked.path["name"]
    with _known(connection, kind_called("pv"), name, asked):
        return volume_history.claims_of(connection, name, within, **_rest(asked))


def _on_node(connection: Connection, asked: OperationRequest, within: Window) -> Page:
    name = asked.path["name"]
    found = decisions.on_node(connection, name, within, **_rest(asked))
    if not found.items:
        _refuse_unknown(connection, kind_called("node"), name, asked)
    return found


@contextmanager
def _known(connection: Connection, named: Named, key: str, asked: OperationRequest) -> Iterator[None]:
    """What is said of an object that never was there names those that come near."""
    try:
        yield
    except UnknownError:
        _refuse_unknown(connection, named, key, asked)
        raise


def _refuse_unknown(connection: Connection, named: Named, key: str, asked: OperationRequest) -> None:
    message = never_was(connection, named, key, within=_told_of(asked))
    if message is not None:
        raise ApiError(404, message)


history_of = _paged(_history)
who = _paged(_who)
attempts_of = _paged(_attempts)
claims_of = _paged(_claims_of)
on_node = _paged(_on_node)
rollbacks = _paged(lambda it, asked, within: decisions.rollbacks(it, within, **_rest(asked)))
interventions = _paged(lambda it, asked, within: history.interventions(it, within, **_rest(asked)))
reads_of = _paged(lambda it, asked, within: reads.reads(it, within, **_rest(asked)))
latencies = _paged(lambda it, asked, within: latency.latency(it, within, limit=asked.query["bindings"]))


def volume(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        position = position_of(connection, asked.text("asOf"), now=asked.now)
        with _known(connection, kind_called("pv"), asked.path["name"], asked):
            return HttpAnswer(volume_history.bound_at(connection, asked.path["name"], position=position))


def why(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        return HttpAnswer(attempts.why_named(connection, asked.path["name"], node=asked.text("node")))


def why_pod(context: Context, asked: OperationRequest) -> HttpAnswer:
    pod = f"{asked.namespace}/{asked.path['name']}"
    with context.services.database.read() as connection:
        position = position_of(connection, asked.text("asOf"), now=asked.now)
        item = attempts.why_pod(connection, pod, position=position, node=asked.text("node"))
        if item is None:
            _refuse_unknown(connection, kind_called("pod"), pod, asked)
            raise UnknownError(attempts.NOTHING_TRIED.format(pod=pod))
    return HttpAnswer(item)


def cause(context: Context, asked: OperationRequest) -> HttpAnswer:
    text = asked.path["name"]
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ApiError(400, f'"{text[:80]}" is not the position of an event')
    with context.services.database.read() as connection:
        return page(causes.causation(connection, int(text), limit=asked.query["limit"]))


def cause_of_binding(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        return page(causes.of_binding(connection, asked.path["name"], limit=asked.query["limit"]))


def in_flight(context: Context, asked: OperationRequest) -> HttpAnswer:
    age = _duration(asked)
    with context.services.database.read() as connection:
        if asked.text("asOf") is None:
            return page(decisions.in_flight(connection, now=asked.now, older_than=age, **_rest(asked)))
        within = _window(connection, asked)
        return page(decisions.was_in_flight(connection, within, older_than=age, **_rest(asked)))


def orphans(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        found = orphans_of(connection, now=asked.now, older_than=_duration(asked))
    items = [asdict(it) | {"since": time_text(it.since), "remedy": it.remedy} for it in found]
    return page(Page(items=items))


def diff(context: Context, asked: OperationRequest) -> HttpAnswer:
    kind = asked.text("kind")
    named = None if kind is None else kind_called(kind)
    if named is not None and not named.is_object:
        raise ApiError(400, f"{named.plural} are no objects; ask for them under audit")
    with context.services.database.read() as connection:
        first = position_of(connection, asked.text("from"), now=asked.now)
        last = position_of(connection, asked.text("to"), now=asked.now)
        if first > last:
            raise MomentError(f"from {asked.text('from')} is later than to {asked.text('to')}; change them over")
        within = window(connection, first=first + 1, last=last)
        noun, limit = None if named is None else named.noun, asked.query["limit"]
        answer = world_diff(connection, within, noun=noun, after=asked.text("continue"), limit=limit)
        while not answer.items and answer.after is not None:
            # A page looks at a few thousand events; where none of them made a difference, it is empty.
            answer = world_diff(connection, within, noun=noun, after=answer.after, limit=limit)
    return page(answer)


def as_it_was(context: Context, asked: OperationRequest) -> HttpAnswer:
    """All objects of a kind at a moment."""
    named = kind_called(asked.path["kind"])
    with context.services.database.read() as connection:
        look = _look(connection, asked)
        found = [
            (key, state)
            for key, state in look.every(named.noun)
            if asked.namespace is None or namespace_of(key, state) == asked.namespace
        ]
        if asked.wanted.form is AnswerFormat.TABLE:
            return _rows(connection, look, named, found, asked)
    return HttpAnswer(as_list([as_manifest(named.noun, key, state) for key, state in found]))


def one_as_it_was(context: Context, asked: OperationRequest) -> HttpAnswer:
    named = _named(asked)
    with context.services.database.read() as connection:
        look, key = _look(connection, asked), _key(named, asked)
        state = look.one(named.noun, key)
        if state is None:
            raise ApiError(404, not_found(connection, look, named, key, within=_told_of(asked)))
        if asked.wanted.form is AnswerFormat.TABLE:
            return _rows(connection, look, named, [(key, state)], asked)
    return HttpAnswer(as_manifest(named.noun, key, state))


def describe(context: Context, asked: OperationRequest) -> HttpAnswer:
    named = _named(asked)
    with context.services.database.read() as connection:
        look, key = _look(connection, asked), _key(named, asked)
        state = look.one(named.noun, key)
        if state is None or (isinstance(state, ObjectState) and state.manifest is None):
            raise ApiError(404, not_found(connection, look, named, key, within=_told_of(asked)))
        headers = {MOMENT: str(_moment(connection, look, asked))}
        return HttpAnswer(described(look, named, key, state), headers=headers)


def _rows(
    connection: Connection, look: Look, named: Named, found: Sequence[tuple[str, State]], asked: OperationRequest
) -> HttpAnswer:
    metadata = {"resourceVersion": str(look.position)}
    now = _moment(connection, look, asked)
    return rows(named.noun, found, asked, now=now, metadata=metadata, look=look)


def _moment(connection: Connection, look: Look, asked: OperationRequest) -> int:
    """What ages are counted to: of the past, when its last event was written."""
    last = None if asked.text("asOf") is None else event(connection, look.position)
    return asked.now if last is None else last.at


def _told_of(asked: OperationRequest) -> str | None:
    """The namespace of which names may be told; None: every one. Who is let into one reads of no other."""
    caller = current_caller()
    everywhere = caller is None or any(it.namespaces is None for it in caller.grants)
    return None if everywhere else asked.namespace


def _look(connection: Connection, asked: OperationRequest) -> Look:
    if asked.text("asOf") is None:
        return Now(connection, read_head(connection).position)
    return AsOf(connection, position_of(connection, asked.text("asOf"), now=asked.now))


def _duration(asked: OperationRequest) -> int:
    text = asked.text("olderThan") or "0s"
    found = read_duration(text)
    if found is None:
        raise ApiError(400, f'olderThan: "{text}" is no length of time; write a number and s, m, h, d or w, as 7d')
    return found
