"""The counts behind metrics and `status`, as a server has them that has read all of a log."""

from volsched.api.watch_cache import changes_of
from volsched.log.database import Database
from volsched.log.events.fold import State
from volsched.log.reads.tail import tail
from volsched.questions.status.storage_tally import StorageTally


def followed(database: Database) -> StorageTally:
    """All of the log, event by event."""
    tally, states = StorageTally(), dict[str, State]()
    with database.read() as connection:
        for _ in changes_of(tail(connection, after=0, limit=10_000), states, tally.follow):
            pass
    return tally
