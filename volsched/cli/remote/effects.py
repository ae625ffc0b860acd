"""`volsched effects` over HTTP."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from volsched.cli.console import Exit, fail
from volsched.cli.remote import paths
from volsched.cli.remote.server import RefusedError, Server
from volsched.log.effects import EffectState, Queued

PAGE = 1_000


def effects(
    server: Server, *, state: EffectState | None, queue: str | None, limit: int, after: str | None
) -> list[Queued]:
    """In the order of their keys, at most so many."""
    found: list[Queued] = []
    chosen = None if state is None else state.value
    while len(found) < limit:
        query = {"state": chosen, "queue": queue, "limit": min(limit - len(found), PAGE), "continue": after}
        told = server.get(paths.own("effects"), query)
        found += [_queued(it["status"]) for it in told["items"]]
        after = told["metadata"].get("continue")
        if after is None:
            break
    return found


def act(server: Server, key: str, verb: Literal["retry", "cancel"], reason: str | None, *, not_parked: str) -> str:
    """What was done, in the server's words; only work that was given up can be retried or cancelled."""
    path = paths.own("effects", key.replace("/", "."), verb)
    try:
        return str(server.tell("POST", path, body={"reason": reason or ""}).body["message"])
    except RefusedError as error:
        if error.code not in (404, 409):
            server.refuse(error)
        fail(Exit.NOT_FOUND, not_parked)


def _queued(status: Mapping[str, Any]) -> Queued:
    """What is not told of it is nothing."""
    told: dict[str, Any] = {it.name: status.get(it.name) for it in fields(Queued)}
    return Queued(**{**told, "state": EffectState(status["state"])})
