"""A store that the command opens itself, asked through the registry.

An SQLite store in a plain file is read by SQLite's own driver for as long as that suffices (`log.sqlite_file`);
SQLAlchemy takes longer to load than most questions to answer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from volsched.cli.log_options import asks_for_log
from volsched.cli.remote.server_options import choice_of_command
from volsched.cli.store_option import opened
from volsched.log.sqlite_file import BeyondFileError, present_state
from volsched.questions.context import QuestionContext
from volsched.questions.get.object_rows import ObjectsAnswer
from volsched.questions.parameters import Parameters
from volsched.questions.registry import DatedDocument, Question, document_of, handler_answer
from volsched.runtime.clock import system_clock
from volsched.runtime.user_files import plain_file

if TYPE_CHECKING:
    from volsched.kube.object_values import Object
    from volsched.log.database import Database
    from volsched.log.reads.views import Now
    from volsched.scheduling.rules.profile import Profile

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class StoreClient:
    database: "Database | None" = None
    over: Sequence["Object"] = ()
    profile: "Profile | None" = None
    archives: Sequence[Iterator[str]] = ()
    progress: Callable[[int], None] | None = None
    file: Path | None = None
    """Set if the driver can read it; the database is opened when a question needs more than that."""
    open_database: Callable[[], "Database"] | None = None

    def document(self, declaration: Question, parameters: Parameters) -> DatedDocument:
        def answer_in(context: QuestionContext) -> DatedDocument:
            answer = handler_answer(declaration, context, parameters)
            moment = answer.moment if isinstance(answer, DatedDocument) else context.now
            return DatedDocument(document_of(declaration, answer), moment)

        return self._ask(declaration, answer_in)

    def permitted(self, declaration: Question, parameters: Parameters) -> DatedDocument | None:
        """Anyone who can open the store may ask everything."""
        return self.document(declaration, parameters)

    def objects(self, declaration: Question, parameters: Parameters) -> ObjectsAnswer:
        def answer_in(context: QuestionContext) -> ObjectsAnswer:
            answer: ObjectsAnswer = handler_answer(declaration, context, parameters)
            return answer

        return self._ask(declaration, answer_in)

    def whole_store(self) -> "Database | None":
        """The database itself, opened now if it was not before."""
        if self.database is None and self.open_database is not None:
            self.database = self.open_database()
        return self.database

    def _ask(self, declaration: Question, answer_in: Callable[[QuestionContext], T]) -> T:
        if declaration.of_views and self.database is None and self.file is not None:
            try:
                with present_state(self.file) as present:
                    return answer_in(self._context(present=present))
            except BeyondFileError:
                pass
        return answer_in(self._context(store=self.whole_store()))

    def _context(self, *, store: "Database | None" = None, present: "Now | None" = None) -> QuestionContext:
        return QuestionContext(
            store=store,
            present=present,
            now=system_clock(),
            profile=self.profile,
            over=self.over,
            archives=self.archives,
            progress=self.progress,
        )


@contextmanager
def store_client(
    db: str | None, *, over: Sequence["Object"], profile: "Profile | None", archives: Sequence[str], bar: str
) -> Iterator[StoreClient]:
    if over and db is None:
        yield StoreClient(over=over, profile=profile)
    elif bar:
        with _client_with_progress(db, archives, bar) as client:
            yield client
    else:
        with ExitStack() as stack:
            # A log, objects laid over the store and a live listing need the database.
            in_file = not (over or asks_for_log() or choice_of_command().live)
            yield StoreClient(
                over=over,
                profile=profile,
                file=plain_file(db) if in_file else None,
                open_database=partial(stack.enter_context, opened(db, *archives)),
            )


@contextmanager
def _client_with_progress(db: str | None, archives: Sequence[str], bar: str) -> Iterator[StoreClient]:
    with opened(db, *archives) as database:
        from volsched.cli.manifest_input import lines_of
        from volsched.cli.progress import progress_bar
        from volsched.log.reads.tail import read_head

        with database.read() as connection:
            last = read_head(connection).position
        with progress_bar(bar, last) as progress:
            yield StoreClient(database=database, archives=[*map(lines_of, archives)], progress=progress)
