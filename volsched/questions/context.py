"""Of which store a question is asked, when, and what whoever asks may know."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volsched.log.sqlite_file import BeyondFileError
from volsched.questions.refusals import QuestionError, UnknownError

if TYPE_CHECKING:
    # A question about the present of an SQLite store loads neither SQLAlchemy nor what reads the past.
    from sqlalchemy import Connection

    from volsched.kube.object_values import Object
    from volsched.log.database import Database
    from volsched.log.events.streams import Named
    from volsched.log.reads.event_audit import Window
    from volsched.log.reads.views import Now
    from volsched.questions.parameters import WindowParameters as AskedWindow
    from volsched.questions.status.storage_tally import StorageTally
    from volsched.scheduling.rules.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionContext:
    store: "Database | None"
    """None: only the objects that are laid over it are looked at, or what was read of it."""
    present: "Now | None" = None
    """What a file's own driver reads of the store; whoever needs more of it gets a BeyondFileError."""
    now: int
    """In microseconds since 1970: ages and lengths of time are counted from here."""
    namespaces: frozenset[str] | None = None
    """Those of which the caller may know; None: all."""
    profile: "Profile | None" = None
    """How schedulers decide; None: as the settings say."""
    over: "Sequence[Object]" = ()
    """Objects that are laid over the store in memory."""
    archives: "Sequence[Iterator[str]]" = ()
    """The lines of files that the oldest events were moved to, which a verification proves as well."""
    tally: "StorageTally | None" = None
    """What is counted already, where somebody keeps it up with the log."""
    progress: Callable[[int], None] | None = None
    """Told the position that has been reached, of long work."""

    @property
    def database(self) -> "Database":
        if self.present is not None:
            raise BeyondFileError("this is asked of the whole store")
        if self.store is None:
            raise QuestionError("this is asked of a store; name one")
        return self.store

    @contextmanager
    def now_in_store(self) -> Iterator["Now"]:
        """One consistent view of the store as it is."""
        if self.present is not None:
            yield self.present
            return
        from volsched.log.reads.as_of import look_at_head

        with self.database.read() as connection:
            yield look_at_head(connection)

    @contextmanager
    def window(self, asked: "AskedWindow") -> Iterator[tuple["Connection", "Window"]]:
        """One snapshot of the store, and the part of its history that is asked about."""
        from volsched.questions.history.moments import window_of

        with self.database.read() as connection:
            yield (
                connection,
                window_of(connection, since=asked.since, until=asked.until, as_of=asked.as_of, now=self.now),
            )

    def refuse_unknown(self, connection: "Connection", named: "Named", key: str) -> None:
        """UnknownError for an object that never was there, with similar names that the caller may see."""
        from volsched.questions.get.near_names import never_was

        within = None if self.namespaces is None else key.rpartition("/")[0]
        message = never_was(connection, named, key, within=within)
        if message is not None:
            raise UnknownError(message)

    @contextmanager
    def known(self, connection: "Connection", named: "Named", key: str) -> Iterator[None]:
        """What is said of an object that never was there names those that come near."""
        try:
            yield
        except UnknownError:
            self.refuse_unknown(connection, named, key)
            raise
