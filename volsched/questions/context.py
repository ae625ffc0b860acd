"""Of which store a question is asked, when, and what whoever asks may know."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from volsched.log.database import Database
from volsched.log.events.kind_names import Named
from volsched.log.reads.event_audit import Window
from volsched.questions.audit.answers import QuestionError, UnknownError
from volsched.questions.get.near_names import never_was
from volsched.questions.history.moments import window_of
from volsched.questions.parameters import WindowParameters as AskedWindow

if TYPE_CHECKING:
    from volsched.kube.kinds import Object
    from volsched.scheduling.rules.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionContext:
    store: Database | None
    """None: only the objects that are laid over it are looked at."""
    now: int
    """In microseconds since 1970: ages and lengths of time are counted from here."""
    namespaces: frozenset[str] | None = None
    """Those of which the caller may know; None: all."""
    profile: "Profile | None" = None
    """How schedulers decide; None: as the settings say."""
    over: "Sequence[Object]" = ()
    """Objects that are laid over the store in memory."""
    progress: Callable[[int], None] | None = None
    """Told the position that has been reached, of long work."""

    @property
    def database(self) -> Database:
        if self.store is None:
            raise QuestionError("this is asked of a store; name one")
        return self.store

    @contextmanager
    def window(self, asked: AskedWindow) -> Iterator[tuple[Connection, Window]]:
        """One snapshot of the store, and the part of its history that is asked about."""
        with self.database.read() as connection:
            yield (
                connection,
                window_of(connection, since=asked.since, until=asked.until, as_of=asked.as_of, now=self.now),
            )

    def refuse_unknown(self, connection: Connection, named: Named, key: str) -> None:
        """UnknownError for an object that never was there, with the names that come near and may be told."""
        within = None if self.namespaces is None else key.rpartition("/")[0]
        message = never_was(connection, named, key, within=within)
        if message is not None:
            raise UnknownError(message)

    @contextmanager
    def known(self, connection: Connection, named: Named, key: str) -> Iterator[None]:
        """What is said of an object that never was there names those that come near."""
        try:
            yield
        except UnknownError:
            self.refuse_unknown(connection, named, key)
            raise
