"""Objects at a moment: one of them, all of a kind, or one with its bindings, attempts and events."""

from collections.abc import Sequence

from sqlalchemy import Connection

from volsched.api.access.callers import current_caller
from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import AnswerFormat
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.operations import Context, OperationRequest
from volsched.api.questions.rows import rows
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.kind_names import Named, kind_called
from volsched.log.reads.as_of import AsOf, Look, Now
from volsched.log.reads.tail import event, read_head
from volsched.questions.get.cells import namespace_of
from volsched.questions.get.describe import described
from volsched.questions.get.documents import as_list, as_manifest
from volsched.questions.get.near_names import not_found
from volsched.questions.history.moments import position_of

MOMENT = "volsched-moment"
"""A header: the time of what is described, in microseconds since 1970."""


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
