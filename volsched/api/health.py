"""`/livez`, `/readyz` and `/healthz`, in the words of Kubernetes' own."""

from volsched.api.services import Services
from volsched.log import leases
from volsched.log.batch import CARRIED_US, Head
from volsched.log.database import FULL
from volsched.log.errors import StoreError
from volsched.log.leases import LeaseStanding
from volsched.log.reads.tail import read_head
from volsched.pv_controller.controller import LEASE_NAME
from volsched.runtime.clock import SECOND

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
        head, leading = await services.read(_look, services)
        checks["room"] = await services.read(_room, services)
    except StoreError as error:
        return checks | {"store": str(error)}
    lag = head.position - services.fan.position
    if lag > MOST_LAG:
        checks["tail"] = f"watches are {lag} events behind the log"
    stopping = "the server is shutting down" if services.fan.stopping else None
    now = services.clock()
    wrong = {"clock": _clock(head, now), "controller": _controller(leading, now)}
    return checks | {"store": None, "shutdown": stopping} | wrong


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


def _look(services: Services) -> tuple[Head, LeaseStanding | None]:
    with services.database.read() as connection:
        head = read_head(connection)
    standings = leases.standings(services.database, now=services.clock())
    return head, next((it for it in standings if it.lease.name == LEASE_NAME), None)


def _clock(head: Head, now: int) -> str | None:
    ahead = head.at - now
    if ahead <= CARRIED_US:
        return None
    return (
        f"the log's last event is {ahead // SECOND} s ahead of this machine's clock: this one is slow, or that of "
        "whoever wrote last was fast; set it right, and the next write goes on with the right time"
    )


def _controller(leading: LeaseStanding | None, now: int) -> str | None:
    """One that gave its lease back, or never was, is missed by an alert and not here: somebody wants it so."""
    if leading is None or not leading.given_up(now):
        return None
    return (
        f"nobody acts as controller: {leading.over}, and {leading.lease.holder} has not renewed its lease for "
        f"{leading.age(now) // SECOND} s; start volsched serve controller"
    )
