"""Keeps Python's garbage collector from repeatedly walking data that is being loaded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""New objects between two collections of the youngest."""
OLDER, OLDEST = 50, 10
"""Collections of the youngest between two of the older, and of those between full ones. Objects that survive one
collection nearly always stay, and the next one walks them again."""
_USUAL = gc.get_threshold()
_holds_for_good = False


@contextmanager
def collector_resting() -> Iterator[None]:
    """No garbage collection while very many objects without cycles are created: it would walk all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _holds_for_good:
                # All new objects count as young now and would be walked at once. This makes them old at no cost. A
                # process that has frozen its objects keeps them frozen; asking the collector whether there are any
                # would count them all, which took longer than many loads.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def collect_seldom() -> None:
    """Collect less often, for a long-running process: its present objects stay, and most new ones are freed soon.

    Every full collection walks a picture of 50,000 volumes, and by default one happens every few hundred pods.
    Most new objects that survive a collection stay too: the picture grows, and each collection would walk the same
    objects again. Called after the picture is loaded.
    """
    global _holds_for_good
    _holds_for_good = True
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDEST)


def collect_as_usual() -> None:
    """Undo `collect_seldom`: cycles among the frozen objects can be collected again."""
    global _holds_for_good
    _holds_for_good = False
    gc.unfreeze()
    gc.set_threshold(*_USUAL)
