"""Telling pods of bindings that failed, in the transaction in which they fail: nobody can crash in between."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Connection, select

from volsched.binding.rules.failures import BindingFailure, kept, told
from volsched.log import tables
from volsched.log.batch import Batch, load, stage
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState
from volsched.objects.rules.notices import SCHEDULER
from volsched.pv_controller.rules.reasons import PROVISIONING_FAILED

SECOND = 1_000_000
LATELY = 300 * SECOND
"""A provisioner that goes on saying the same is written down this often: its words count so much longer."""
_notices = tables.notices


def tell_failures(database: Database, connection: Connection, batch: Batch, *, actor: str) -> None:
    """Of every decision that this transaction gives up: keep why with its attempt, and tell the pod."""
    failures = list(_failures(batch))
    if not failures:
        return
    load(database, connection, batch, (stream for _, it in failures for stream in it.streams))
    words = _words(connection, batch, [it for _, it in failures])
    for position, failure in failures:
        stored = kept(failure, batch.states, words=words.get(failure.binding))
        if stored is not None:
            batch.take(*stage(batch, actor, (stored,), position), ())
        try:
            news = told(failure, batch.states, component=SCHEDULER, now=_rfc3339(batch.now))
            events, states = stage(batch, actor, news, position)
        except Exception:
            # A pod whose status cannot be added to. What failed is recorded whatever the pod looks like.
            continue
        batch.take(events, states, ())


def _failures(batch: Batch) -> Iterator[tuple[int, BindingFailure]]:
    """With the positions of the events that say so."""
    for event in batch.events:
        # Looked for in the text first: nearly all moves are forward.
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
    """By binding, what the provisioner last said of the claim whose leg failed."""
    asked = {it.binding: it for it in failures if it.leg is not None and it.leg.dynamic}
    if not asked:
        return {}
    claims = {f"PersistentVolumeClaim/{it.leg.claim}" for it in asked.values() if it.leg is not None}
    select_ = select(_notices.c.manifest).where(
        _notices.c.about.in_(claims), _notices.c.reason == PROVISIONING_FAILED
    )
    stored = [orjson.loads(row.manifest) for row in connection.execute(select_)]
    fresh = (it.manifest for it in batch.states.values() if isinstance(it, ObjectState))
    said = [*stored, *(it for it in fresh if it is not None and it.get("reason") == PROVISIONING_FAILED)]
    return {binding: found for binding, it in asked.items() if (found := _last_said(it, said)) is not None}


def _last_said(failure: BindingFailure, said: Iterable[Mapping[str, Any]]) -> str | None:
    leg, since = failure.leg, _rfc3339(failure.state.planned_at - LATELY)
    assert leg is not None
    about = [
        (_last_time(it), str(it.get("message") or it.get("note") or ""))
        for it in said
        if (it.get("involvedObject") or {}).get("uid") == leg.claim_uid
    ]
    time, message = max(about, default=("", ""))
    return message if message and time >= since else None


def _last_time(notice: Mapping[str, Any]) -> str:
    times = (notice.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return str(next((it for it in times if it), ""))


def _rfc3339(time: int) -> str:
    return datetime.fromtimestamp(time // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
