"""Views that somebody writes to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.store_samples import NOW, change_volume, create_volume
from volsched.log.database import open_database
from volsched.log.transaction import execute


@contextmanager
def writing(url: str) -> Iterator[list[int]]:
    """A writer on a connection of its own that goes on until the end; gives the positions it was told."""
    told: list[int] = []
    stop = threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        database = open_database(url)
        turn = 0
        while not stop.is_set():
            turn += 1
            made = create_volume(f"w{turn}"), change_volume("b", {"metadata": {"labels": {"turn": str(turn)}}})
            for outcome in execute(database, made, now=NOW):
                if isinstance(outcome, Exception):
                    failures.append(outcome)
                else:
                    told.append(outcome.position)
        database.close()

    writer = threading.Thread(target=write)
    writer.start()
    yield told
    stop.set()
    writer.join()
    assert failures == []
