"""Bindings and attempts: lists, and single ones."""

from collections.abc import Sequence
from typing import Any

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.negotiation import AnswerFormat
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.kinds import ATTEMPTS, BINDINGS
from volsched.api.questions.lists import ListKind, Manifest, shown_list, shown_one
from volsched.api.questions.operations import Context, OperationRequest
from volsched.api.questions.rows import rows
from volsched.log.events.fold import AttemptState, BindingState, State
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.log.reads.as_of import Now
from volsched.log.reads.decision_pages import attempts_page, bindings_page
from volsched.log.reads.tail import read_head
from volsched.questions.audit.answers import place_in, place_token
from volsched.questions.get.cells import namespace_of
from volsched.questions.get.documents import as_manifest
from volsched.runtime.clock import rfc3339

Found = Sequence[tuple[str, BindingState]] | Sequence[tuple[str, AttemptState]]


def list_bindings(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        head = read_head(connection).position
        found = bindings_page(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.text("continue")),
            limit=asked.query["limit"] + 1,
            pod=pod_key(asked),
            node=asked.text("node"),
            state=asked.text("state"),
            id=asked.text("name"),
        )
    return _shown(BINDINGS, BINDING, found, head, asked)


def list_attempts(context: Context, asked: OperationRequest) -> HttpAnswer:
    with context.services.database.read() as connection:
        head = read_head(connection).position
        found = attempts_page(
            connection,
            namespace=asked.namespace,
            after=place_in(asked.text("continue")),
            limit=asked.query["limit"] + 1,
            pod=pod_key(asked),
            node=asked.text("node"),
            outcome=asked.text("outcome"),
            id=asked.text("name"),
        )
    return _shown(ATTEMPTS, ATTEMPT, found, head, asked)


def get_binding(context: Context, asked: OperationRequest) -> HttpAnswer:
    return _shown_one(BINDINGS, BINDING, _one(context, asked, BINDING), asked)


def get_attempt(context: Context, asked: OperationRequest) -> HttpAnswer:
    return _shown_one(ATTEMPTS, ATTEMPT, _one(context, asked, ATTEMPT), asked)


def steps(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Everything that was done for a binding, over all streams."""
    _one(context, asked, BINDING)
    with context.services.database.read() as connection:
        found = Now(connection, read_head(connection).position).steps_of(asked.path["name"])
    items = [
        {"position": it.position, "at": rfc3339(it.at), "stream": it.stream, "type": it.type, "by": it.actor}
        for it in found
    ]
    return HttpAnswer({"apiVersion": "volsched.io/v1", "kind": "List", "items": items})


def pod_key(asked: OperationRequest) -> str | None:
    """`pod=NAME` within a namespace, else `pod=NAMESPACE/NAME`."""
    named = asked.text("pod")
    if named is None or "/" in named or asked.namespace is None:
        return named
    return f"{asked.namespace}/{named}"


def missing(plural: str, name: str) -> ApiError:
    details = {"name": name, "group": "volsched.io", "kind": plural}
    return ApiError(404, f'{plural}.volsched.io "{name}" not found', details=details)


def _one(context: Context, asked: OperationRequest, noun: str) -> State:
    name = asked.path["name"]
    with context.services.database.read() as connection:
        state = Now(connection, read_head(connection).position).one(noun, name)
    if state is None or namespace_of(name, state) != asked.namespace:
        raise missing(f"{noun}s", name)
    return state


def _shown_one(kind: ListKind, noun: str, state: State, asked: OperationRequest) -> HttpAnswer:
    name = asked.path["name"]
    if asked.wanted.form is AnswerFormat.TABLE:
        return rows(noun, [(name, state)], asked, now=asked.now, metadata={})
    return shown_one(kind, as_manifest(noun, name, state), asked)


def _shown(kind: ListKind, noun: str, found: Found, head: int, asked: OperationRequest) -> HttpAnswer:
    limit = asked.query["limit"]
    more = None
    if len(found) > limit:
        id_, last = found[limit - 1]
        more = place_token(_time(last), id_)
    if asked.wanted.form is AnswerFormat.TABLE:
        metadata = {"resourceVersion": str(head)} | ({} if more is None else {"continue": more})
        return rows(noun, found[:limit], asked, now=asked.now, metadata=metadata)
    items: list[Manifest] = [as_manifest(noun, id_, state) for id_, state in found[:limit]]
    return shown_list(kind, items, position=head, more=more, asked=asked)


def _time(state: Any) -> int:
    return int(state.planned_at if isinstance(state, BindingState) else state.first_at)
