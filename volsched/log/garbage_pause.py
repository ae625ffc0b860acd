"""Keeping Python's garbage collector from walking what is being loaded, again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects between two collections of the youngest."""
_holds_for_good = False


@contextmanager
def collector_resting() -> Iterator[None]:
    """No garbage collection while very many objects without cycles are made: it would walk them all each time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _holds_for_good:
                # All that was made counts as young now and would be walked at once. This makes it old instead, for
                # nothing. A process that has frozen what it holds keeps it so; to ask the collector whether there
                # is any would count all of it, which took longer than many a load.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def collect_seldom() -> None:
    """For a process that runs on: what it holds by now it holds for good, and what comes dies young.

    A picture of 50,000 volumes is walked by every full collection, and by default those come every few hundred
    pods. Called once, after the picture is loaded.
    """
    global _holds_for_good
    _holds_for_good = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 100)
