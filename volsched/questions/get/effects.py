"""Effects as objects with columns: work that is queued, in flight or parked."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from volsched.log.database import Database
from volsched.log.effects import QueuedEffect, list_effects
from volsched.log.reads.tail import read_head
from volsched.questions.context import QuestionContext
from volsched.questions.get.documents import OUR_API
from volsched.questions.get.list_parameters import EffectList, EffectName
from volsched.questions.get.manifest_columns import MANIFEST_NAME, ManifestColumn, field_of, manifest_row
from volsched.questions.get.object_rows import ObjectsAnswer
from volsched.questions.refusals import MissingError
from volsched.runtime.clock import rfc3339

KIND, PLURAL = "Effect", "effects"
CHUNK = 1_000
COLUMNS = (
    MANIFEST_NAME,
    ManifestColumn("QUEUE", field_of("status", "queue")),
    ManifestColumn("STATE", field_of("status", "state")),
    ManifestColumn("ATTEMPTS", field_of("status", "attempts")),
    ManifestColumn("DUE", field_of("status", "dueAt")),
    ManifestColumn("ERROR", field_of("status", "error")),
    ManifestColumn("BINDING", field_of("status", "binding"), wide=True),
)


def effects(context: QuestionContext, parameters: EffectList) -> ObjectsAnswer:
    if parameters.name is None:
        queued = list_effects(
            context.database,
            state=parameters.state,
            queue=parameters.queue,
            limit=parameters.limit + 1,
            after=parameters.after,
        )
    else:
        matches = effects_named(context.database, parameters.name)
        queued = [
            it for it in matches if parameters.state in (None, it.state) and parameters.queue in (None, it.queue)
        ]
    after = queued[parameters.limit - 1].key if len(queued) > parameters.limit else None
    return _answer(context, queued[: parameters.limit], after)


def effect(context: QuestionContext, parameters: EffectName) -> ObjectsAnswer:
    return _answer(context, [effect_named(context.database, parameters.name)])


def effect_name(key: str) -> str:
    """The key without slashes, which a path and kubectl do not allow."""
    return key.replace("/", ".")


def effects_named(database: Database, name: str) -> Iterator[QueuedEffect]:
    """The effect of that name, if it exists."""
    after: str | None = None
    while chunk := list_effects(database, limit=CHUNK, after=after):
        yield from (it for it in chunk if effect_name(it.key) == name)
        after = chunk[-1].key


def effect_named(database: Database, name: str) -> QueuedEffect:
    effect = next(effects_named(database, name), None)
    if effect is None:
        raise MissingError(PLURAL, name)
    return effect


def _answer(context: QuestionContext, effects: list[QueuedEffect], after: str | None = None) -> ObjectsAnswer:
    with context.database.read() as connection:
        head = read_head(connection).position
    rows = [manifest_row(COLUMNS, _manifest(it), now=context.now) for it in effects]
    return ObjectsAnswer(columns=COLUMNS, rows=rows, position=head, kind=KIND, after=after)


def _manifest(effect: QueuedEffect) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(effect).items() if value is not None}
    due = "now" if effect.due == 0 else rfc3339(effect.due)
    status = fields | {"state": effect.state.value, "dueAt": due}
    metadata = {"name": effect_name(effect.key)}
    return {"apiVersion": OUR_API, "kind": KIND, "metadata": metadata, "status": status}
