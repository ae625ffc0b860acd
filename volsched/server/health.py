"""`/livez`, `/readyz` and `/healthz`, in the words of Kubernetes' own."""

from volsched.engine.clock import SECOND
from volsched.server.services import Services
from volsched.store.database import FULL
from volsched.store.errors import StoreError
from volsched.store.log import read_head

MOST_LAG = 10_000
"""Events that the reader behind the watches may be late by before we call ourselves not ready."""

FULL_FOR = 30 * SECOND
"""After a write for which there was no room, unless another one has succeeded since."""
LEAST_FREE = 2**20
"""Bytes on the disk of an SQLite store."""
WITHHELD = "reason withheld"
"""From a caller that we do not know: what is wrong may name machines and files."""

Checks = dict[str, str | None]
"""What was looked at → what is wrong with it."""


async def alive(services: Services) -> Checks:
    """Nothing that a restart would not cure: a database that is down is no reason to restart us."""
    return {"tail": None if services.fan.position >= 0 else "the log was not read yet"}


async def ready(services: Services) -> Checks:
    checks = await alive(services)
    try:
        head = await services.read(_head, services)
        checks["room"] = await services.read(_room, services)
    except StoreError as error:
        return checks | {"store": str(error)}
    lag = head - services.fan.position
    if lag > MOST_LAG:
        checks["tail"] = f"watches are {lag} events behind the log"
    stopping = "the server is shutting down" if services.fan.stopping else None
    return checks | {"store": None, "shutdown": stopping}


def _room(services: Services) -> str | None:
    """A store without room takes no writes: whoever sends them goes elsewhere until there is some again."""
    if services.full_at is not None and services.clock() - services.full_at < FULL_FOR:
        return FULL
    free = services.database.file.free_bytes()
    return FULL if free is not None and free < LEAST_FREE else None


def told(checks: Checks, *, name: str, verbose: bool) -> str:
    failed = [check for check, wrong in checks.items() if wrong is not None]
    if not failed and not verbose:
        return "ok"
    lines = [
        f"[+]{check} ok" if wrong is None else f"[-]{check} failed: {wrong}" for check, wrong in checks.items()
    ]
    return "\n".join([*lines, f"{name} check {'failed' if failed else 'passed'}", ""])


def _head(services: Services) -> int:
    with services.database.read() as connection:
        return read_head(connection).position
