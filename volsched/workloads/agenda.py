"""A part's work queue: keys that are due at once, in order, or deferred to a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice


@dataclass(slots=True)
class Agenda:
    _soon: dict[str, None] = field(default_factory=dict)
    _later: dict[str, int] = field(default_factory=dict)

    def add(self, keys: Iterable[str]) -> None:
        self._soon |= dict.fromkeys(keys)

    def put_off(self, key: str, due: int) -> None:
        self._later[key] = due

    def drop(self, key: str) -> None:
        self._soon.pop(key, None)
        self._later.pop(key, None)

    @contextmanager
    def batch(self, now: int, limit: int) -> Iterator[list[str]]:
        """The next keys to examine. After an error the outcome of commits is unknown, so all are queued again."""
        taken = self._take(now, limit)
        try:
            yield taken
        except Exception:
            self.add(taken)
            raise

    def _take(self, now: int, limit: int) -> list[str]:
        if self._later:
            for key in [key for key, due in self._later.items() if due <= now]:
                del self._later[key]
                self._soon[key] = None
        taken = list(islice(self._soon, limit))
        for key in taken:
            del self._soon[key]
        return taken

    def next_due(self) -> int | None:
        """When a deferred key becomes due; 0: a key waits for the next step; None: nothing."""
        return 0 if self._soon else min(self._later.values(), default=None)
