"""Work that a worker has given up: parked, until an operator retries or cancels it."""

from volsched.log.database import Database
from volsched.log.effects import Claimed, Retry, claim, retry_later


def park(database: Database, *, key: str, fence: int, error: str) -> bool:
    """The attempt that failed was the last one; False if the effect is no longer held with that fence."""
    return retry_later(database, key=key, fence=fence, due=0, error=error, max_attempts=1) is Retry.PARKED


def parked_prebind(database: Database) -> Claimed:
    """The one volume that waits to be written, given up."""
    (taken,) = claim(database, queue="prebind", owner="w", limit=1, now=2**62, lease_for=1)
    assert park(database, key=taken.key, fence=taken.fence, error="the volume server is on fire")
    return taken
