"""The context of a question: its store, the time, and the caller's access."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volsched.log.sqlite_file import BeyondFileError
from volsched.questions.refusals import QuestionError, UnknownError

if TYPE_CHECKING:
    # A question about the present of an SQLite store loads neither SQLAlchemy nor the modules that read the past.
    from sqlalchemy import Connection

    from volsched.kube.object_values import Object
    from volsched.log.database import Database
    from volsched.log.events.streams import Named
    from volsched.log.reads.event_audit import Window
    from volsched.log.reads.views import Now
    from volsched.questions.parameters import WindowParameters
    from volsched.questions.status.storage_tally import StorageTally
    from volsched.scheduling.rules.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionContext:
    store: "Database | None"
    """The store; None: only the objects in `over` are read, or the reads of `present`."""
    present: "Now | None" = None
    """The store as a file's own driver reads it; a question that needs more raises BeyondFileError."""
    now: int
    """The time of the question, in microseconds since 1970: ages and durations are counted to it."""
    namespaces: frozenset[str] | None = None
    """The namespaces that the caller may read; None: all."""
    profile: "Profile | None" = None
    """The schedulers' profile; None: the one in the settings."""
    over: "Sequence[Object]" = ()
    """Objects that are laid over the store in memory."""
    archives: "Sequence[Iterator[str]]" = ()
    """The lines of archives with the oldest events, which a verification proves too."""
    tally: "StorageTally | None" = None
    """Running totals, if a reader of the log keeps them up to date."""
    progress: Callable[[int], None] | None = None
    """Called during long work with the current position."""

    @property
    def database(self) -> "Database":
        if self.present is not None:
            raise BeyondFileError("this question reads the whole store")
        if self.store is None:
            raise QuestionError("this question reads a store; name one")
        return self.store

    @contextmanager
    def now_in_store(self) -> Iterator["Now"]:
        """One consistent view of the store as it is."""
        if self.present is not None:
            yield self.present
            return
        from volsched.log.reads.as_of import view_at_head

        with self.database.read() as connection:
            yield view_at_head(connection)

    @contextmanager
    def window(self, parameters: "WindowParameters") -> Iterator[tuple["Connection", "Window"]]:
        """One snapshot of the store, and the part of its history that the parameters select."""
        from volsched.questions.history.moments import window_of

        with self.database.read() as connection:
            since, until, as_of = parameters.since, parameters.until, parameters.as_of
            yield connection, window_of(connection, since=since, until=until, as_of=as_of, now=self.now)

    def archived_part(self, parameters: "WindowParameters") -> str | None:
        """The note about the part of a window that is archived; None: no part is."""
        from volsched.questions.history.moments import archived_part

        with self.database.read() as connection:
            return archived_part(connection, since=parameters.since, now=self.now)

    def refuse_unknown(self, connection: "Connection", named: "Named", key: str) -> None:
        """UnknownError for an object that never existed, with similar names that the caller may see."""
        from volsched.questions.get.near_names import unknown_message

        within = None if self.namespaces is None else key.rpartition("/")[0]
        message = unknown_message(connection, named, key, within=within)
        if message is not None:
            raise UnknownError(message)

    @contextmanager
    def with_suggestions(self, connection: "Connection", named: "Named", key: str) -> Iterator[None]:
        """An UnknownError for an object that never existed lists similar names."""
        try:
            yield
        except UnknownError:
            self.refuse_unknown(connection, named, key)
            raise
