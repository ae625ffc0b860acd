"""Connections that stay out of the pool between transactions.

Taking a connection from SQLAlchemy's pool, beginning, committing and returning it costs about as much as the
statements of a small transaction. So an engine keeps a few of its connections, and the driver commits. They
are handled like those in the pool: checked after a pause, never used again after an error, and closed when the
engine is disposed of.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, event

MOST_KEPT = 2
"""Kept connections per use. Concurrent threads take further ones from the pool, which has 15 in all."""
CHECKED_AFTER_SECONDS = 1.0
"""As in the pool: a check costs a round trip; a server that restarts within a second costs one error."""
ATTRIBUTE = "volsched_kept_connections"
"""Attribute of the engine. Several stores of a simulation share one, and it may never be disposed of."""


@dataclass(slots=True)
class KeptConnections:
    engine: Engine
    options: dict[str, Any]
    is_alive: Callable[[Connection], bool]
    _idle: list[tuple[Connection, float]] = field(default_factory=list)
    _disposals: int = 0
    """How often the engine was disposed of: connections from before that are not kept."""

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        connection, disposals = self._take(), self._disposals
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if disposals == self._disposals and len(self._idle) < MOST_KEPT:
            self._idle.append((connection, time.monotonic()))
        else:
            connection.close()

    def give_back(self) -> None:
        """Return all idle connections to the pool."""
        while (known := self._popped()) is not None:
            known[0].close()

    def discard(self) -> None:
        """Close all idle connections."""
        self._disposals += 1
        while (known := self._popped()) is not None:
            known[0].invalidate()
            known[0].close()

    def _take(self) -> Connection:
        while (known := self._popped()) is not None:
            connection, since = known
            if time.monotonic() - since <= CHECKED_AFTER_SECONDS or self.is_alive(connection):
                return connection
            # The other connections are lost too.
            connection.invalidate()
            connection.close()
            self.engine.dispose()
        return self.engine.connect().execution_options(**self.options)

    def _popped(self) -> tuple[Connection, float] | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


def kept_connections(
    engine: Engine, use: str, is_alive: Callable[[Connection], bool], **options: Any
) -> KeptConnections:
    """The connections that the engine keeps for a use, with these execution options."""
    of_engine: dict[str, KeptConnections] | None = vars(engine).get(ATTRIBUTE)
    if of_engine is None:
        of_engine = vars(engine).setdefault(ATTRIBUTE, {})
        event.listen(engine, "engine_disposed", _disposed)
    return of_engine.get(use) or of_engine.setdefault(use, KeptConnections(engine, options, is_alive))


def give_back(engine: Engine) -> None:
    """Return the idle connections to the pool, for callers that count its connections."""
    for kept in tuple(vars(engine).get(ATTRIBUTE, {}).values()):
        kept.give_back()


def _disposed(engine: Engine) -> None:
    for kept in tuple(vars(engine)[ATTRIBUTE].values()):
        kept.discard()
