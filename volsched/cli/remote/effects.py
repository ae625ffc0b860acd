"""`volsched effects` over HTTP."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from volsched.cli.console import Exit, fail
from volsched.cli.remote import paths
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.log.effects import EffectState, QueuedEffect

PAGE = 1_000


def effects(
    server: RemoteServer, *, state: EffectState | None, queue: str | None, limit: int, after: str | None
) -> list[QueuedEffect]:
    """In the order of their keys, at most so many."""
    found: list[QueuedEffect] = []
    chosen = None if state is None else state.value
    while len(found) < limit:
        query = {"state": chosen, "queue": queue, "limit": min(limit - len(found), PAGE), "continue": after}
        told = server.get(paths.own("effects"), query)
        found += [_queued(it["status"]) for it in told["items"]]
        after = told["metadata"].get("continue")
        if after is None:
            break
    return found


def act(
    server: RemoteServer, key: str, verb: Literal["retry", "cancel"], reason: str | None, *, not_parked: str
) -> str:
    """What was done, in the server's words; only work that was given up can be retried or cancelled."""
    path = paths.own("effects", key.replace("/", "."), verb)
    try:
        return str(server.tell("POST", path, body={"reason": reason or ""}).body["message"])
    except ServerRefusedError as error:
        if error.code not in (404, 409):
            server.refuse(error)
        fail(Exit.NOT_FOUND, not_parked)


def _queued(status: Mapping[str, Any]) -> QueuedEffect:
    """What is not told of it is nothing."""
    told: dict[str, Any] = {it.name: status.get(it.name) for it in fields(QueuedEffect)}
    return QueuedEffect(**{**told, "state": EffectState(status["state"])})
