"""A process that only schedules, for tests that run several on one store.

Usage: python -m tests.support.scheduler_process URL NUMBER OF
The NUMBERth of so many schedulers. It plans until it is told something on its input, then prints how many pods it
has planned and how many times it decided.
"""

import select
import sys
from uuid import uuid4

from sqlalchemy import func
from sqlalchemy import select as query

from tests.support.fresh_stores import unsynced
from tests.support.patience import wait_until
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.runtime.clock import system_clock
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.queue.entry import Share
from volsched.scheduling.queue.queue import Queue
from volsched.scheduling.scheduler import Scheduler

IDLE_SECONDS = 0.01
BATCH = 16
"""Far fewer than there are pods: every process has many to decide."""


def planners(database: Database) -> set[str]:
    events = tables.events
    told = query(events.c.actor).where(events.c.type == "BindingPlanned").distinct()
    with database.read() as connection:
        return set(connection.execute(told).scalars())


def main(url: str, number: int, of: int) -> None:
    database = open_database(url)
    unsynced(database)
    world = World(database)
    share = Share(number, of)
    picture = Picture(world, Index(share=share))
    owner = f"scheduler/{number}"
    scheduler = Scheduler(database, picture, owner, lambda: uuid4().hex, queue=Queue(share), batch=BATCH)
    # Loaded before anybody begins: the first one would else be done before the last one has looked.
    loaded = world.catch_up()
    picture.update(loaded)
    scheduler.update(loaded, system_clock())
    print("ready", flush=True)
    sys.stdin.readline()
    tried, alone = 0, of > 1
    while True:
        if tried and alone:
            # On a busy machine one of them would else have done it all before another has its first turn.
            wait_until(lambda: planners(database) != {owner})
            alone = False
        now = system_clock()
        changed = world.catch_up()
        picture.update(changed)
        scheduler.update(changed, now)
        done = scheduler.step(now)
        tried += done
        if not done and select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
            break
    events = tables.events
    planned = query(func.count()).where(events.c.type == "BindingPlanned", events.c.actor == owner)
    with database.read() as connection:
        print(connection.execute(planned).scalar_one(), tried, flush=True)
    database.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
