"""Effects: what workers have to do, and what an operator does about work that was given up."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from volsched.api.kubernetes.answers import HttpAnswer
from volsched.api.kubernetes.statuses import ApiError
from volsched.api.questions.decisions import missing
from volsched.api.questions.kinds import EFFECTS
from volsched.api.questions.lists import shown_list, shown_one
from volsched.api.questions.models import Reason
from volsched.api.questions.operations import Context, OperationRequest
from volsched.binding.sweep import Sweep
from volsched.log.effects import EffectState, QueuedEffect, list_effects
from volsched.log.reads.open_bindings import Parked, parked_effects
from volsched.log.reads.tail import read_head
from volsched.questions.registry import API_VERSION
from volsched.runtime.clock import rfc3339

EVERY_PARKED = 100_000
CHUNK = 1_000


def name_of(key: str) -> str:
    """As a path and kubectl can hold it: a key has slashes."""
    return key.replace("/", ".")


def list_queued(context: Context, asked: OperationRequest) -> HttpAnswer:
    database, limit = context.services.database, asked.query["limit"]
    queue, state = asked.text("queue"), asked.text("state")
    after, name = asked.text("continue"), asked.text("name")
    chosen = None if state is None else EffectState(state)
    if name is None:
        found = list_effects(database, state=chosen, queue=queue, limit=limit + 1, after=after)
    else:
        found = [it for it in _called(context, name) if chosen in (None, it.state) and queue in (None, it.queue)]
    with database.read() as connection:
        head = read_head(connection).position
    more = found[limit - 1].key if len(found) > limit else None
    items = [_manifest(it) for it in found[:limit]]
    return shown_list(EFFECTS, items, position=head, more=more, asked=asked)


def get_effect(context: Context, asked: OperationRequest) -> HttpAnswer:
    return shown_one(EFFECTS, _manifest(_one(context, asked.path["name"])), asked)


def retry(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Due at once, with all its attempts anew."""
    parked = _parked(context, asked.path["name"])
    sweep = Sweep(context.services.database, asked.actor)
    if not sweep.retry(parked, asked.now, why=_why(asked)):
        raise _not_parked(asked.path["name"])
    return HttpAnswer(_done(parked, f"{parked.key} is queued again"))


def cancel(context: Context, asked: OperationRequest) -> HttpAnswer:
    """Its binding is rolled back: what was written is undone, or kept with a reason."""
    parked = _parked(context, asked.path["name"])
    Sweep(context.services.database, asked.actor).cancel(parked, asked.now, why=_why(asked))
    return HttpAnswer(_done(parked, f"{parked.key} is cancelled; its binding {parked.binding} ends without it"))


def _called(context: Context, name: str) -> Iterator[QueuedEffect]:
    """Those of that name: none, or one."""
    after: str | None = None
    while found := list_effects(context.services.database, limit=CHUNK, after=after):
        yield from (it for it in found if name_of(it.key) == name)
        after = found[-1].key


def _one(context: Context, name: str) -> QueuedEffect:
    found = next(_called(context, name), None)
    if found is None:
        raise missing(EFFECTS.plural, name)
    return found


def _parked(context: Context, name: str) -> Parked:
    with context.services.database.read() as connection:
        parked = parked_effects(connection, limit=EVERY_PARKED)
    found = next((it for it in parked if name_of(it.key) == name), None)
    if found is None:
        _one(context, name)
        raise _not_parked(name)
    return found


def _not_parked(name: str) -> ApiError:
    return ApiError(409, f'effect "{name}" is not parked; only work that was given up is retried or cancelled')


def _why(asked: OperationRequest) -> str | None:
    assert isinstance(asked.body, Reason)
    return asked.body.reason.strip() or None


def _done(parked: Parked, message: str) -> dict[str, Any]:
    details = {"name": name_of(parked.key), "group": "volsched.io", "kind": EFFECTS.plural}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "message": message}
    return status | {"details": details, "code": 200}


def _manifest(effect: QueuedEffect) -> dict[str, Any]:
    told = {name: value for name, value in asdict(effect).items() if value is not None}
    due = "now" if effect.due == 0 else rfc3339(effect.due)
    status = told | {"state": effect.state.value, "dueAt": due}
    return {
        "apiVersion": API_VERSION,
        "kind": EFFECTS.title,
        "metadata": {"name": name_of(effect.key)},
        "status": status,
    }
