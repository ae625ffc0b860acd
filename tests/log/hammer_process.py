"""A process that writes to a store again and again, without a pause, for tests that run several beside each other.

Usage: python -m tests.log.hammer_process URL TURNS
Says "ready", and begins when it is told something. Then it says in how many seconds at most its turn came, and how
many turns others had in the meantime at most.

       python -m tests.log.hammer_process URL hold [fork]
Takes the lock, says "has it", and keeps it until it is told something; with a child that was forked meanwhile and
stays until its input ends.
"""

import os
import sys
import time

from tests.support.fresh_stores import unsynced
from volsched.log.batch import lock_head
from volsched.log.database import Database, open_database

THINKS_SECONDS = 0.002
"""Of its own CPU, while it has the lock."""


def hammer(database: Database, turns: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    longest = 0.0
    for _ in range(turns):
        asked = time.monotonic()
        with database.write() as connection:
            head = lock_head(database, connection)
            longest = max(longest, time.monotonic() - asked)
            database.dialect.move_head(connection, head.position, head.hash, head.at + 1)
            until = time.thread_time() + THINKS_SECONDS
            while time.thread_time() < until:
                pass
    print(longest, database.waits.most_passed, flush=True)


def hold(database: Database, *, forks: bool) -> None:
    with database.write() as connection:
        lock_head(database, connection)
        if forks and os.fork() == 0:
            sys.stdin.read()
            os._exit(0)
        print("has it", flush=True)
        sys.stdin.readline()


def main(url: str, what: str, *more: str) -> None:
    database = open_database(url)
    unsynced(database)
    if what == "hold":
        hold(database, forks=bool(more))
    else:
        hammer(database, int(what))
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
