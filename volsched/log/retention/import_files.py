"""Files of the log that follow one another, such as archives and an export of what is left, read as one history.

They can be checked without any store, and a store can be made from them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from sqlalchemy import Connection

from volsched.log import tables
from volsched.log.batch import lock_head
from volsched.log.batch_writes import write_views
from volsched.log.database import Database
from volsched.log.errors import StoreError
from volsched.log.events.envelope import GENESIS, Event
from volsched.log.events.redaction import REDACTION, seals_in
from volsched.log.integrity.findings import BrokenLogError
from volsched.log.integrity.replay import Folded, Progress, check_nouns, fold_chunks
from volsched.log.retention.export import CHUNK, ExportError, Manifest, at_line, read_events, read_manifest
from volsched.log.snapshots import write_snapshots


@dataclass(slots=True)
class LogFiles:
    """Files that follow one another, read as one; lines are asked for only when their file is reached."""

    files: Sequence[Iterable[str]]
    manifests: list[Manifest] = field(default_factory=list)
    """Of the files that were reached so far."""
    sealed: dict[int, bytes] = field(default_factory=dict)
    """What redactions among the events that were reached say of others."""

    def events(self) -> Iterator[Event]:
        """All events in order; ExportError with the number of the file, where one is not what it should be."""
        for number, lines in enumerate(self.files):
            rest = iter(lines)
            try:
                self._take(read_manifest(rest))
                for it in read_events(rest, self.manifests[-1]):
                    if it.type == REDACTION:
                        self.sealed |= seals_in(it.data)
                    yield it
            except ExportError as error:
                error.file = number
                raise

    def _take(self, manifest: Manifest) -> None:
        if self.manifests:
            end = self.manifests[-1]
            if (manifest.first, manifest.before) != (end.last + 1, end.hash):
                raise ExportError(
                    f"line 1: the file begins at position {manifest.first} and does not follow the one before, "
                    f"which ends at {end.last}; give all files of one log, in order"
                )
        self.manifests.append(manifest)

    def check_genesis(self) -> None:
        """The first file begins where all history does."""
        begin = self.manifests[0]
        if begin.first != 1 or begin.before != GENESIS:
            raise StoreError(
                f"the first file begins at position {begin.first} and the history at 1; give the files before it "
                "too, or check what there is alone with: volsched import-log --check"
            )

    @property
    def redacted(self) -> dict[int, bytes]:
        """What the files themselves say of events that are no longer what was once written."""
        return {at: seal for manifest in self.manifests for at, seal in manifest.redacted.items()}

    def check_redactions(self) -> None:
        """No event was redacted but by the log's own word: files that end before it are not enough for a store."""
        unknown = min(self.redacted.items() - self.sealed.items(), default=None)
        if unknown is not None:
            raise StoreError(
                f"position {unknown[0]} was redacted, and that is said behind position {self.manifests[-1].last}, "
                "where the files end; give the files that follow too, such as an export of the rest"
            )

    def whole(self) -> Manifest:
        """What one file with all of it would say."""
        begin, end = self.manifests[0], self.manifests[-1]
        return replace(
            end,
            first=begin.first,
            before=begin.before,
            count=end.last - begin.first + 1,
            redacted=self.redacted,
        )

    def located(self, broken: BrokenLogError) -> ExportError:
        """The file and line of an event that cannot be what was once exported."""
        position = broken.finding.position or self.manifests[-1].last
        number = next(index for index, it in enumerate(self.manifests) if position <= it.last)
        error = at_line(broken, self.manifests[number])
        error.file = number
        return error


def verify_export(*files: Iterable[str]) -> Manifest:
    """Check files that follow one another without any store; answers what they are together."""
    chain = LogFiles(files)
    for _ in chain.events():
        pass
    return chain.whole()


def import_log(database: Database, *files: Iterable[str], progress: Progress | None = None) -> Manifest:
    """Make an empty store into what the files are the log of, views included; all of it or nothing."""
    chain = LogFiles(files)
    with database.write() as connection:
        head = lock_head(database, connection)
        if head.position != 0:
            raise StoreError(
                f"the store has {head.position} events already; import into an empty one (volsched migrate)"
            )
        folded = Folded()
        try:
            fold_chunks(_inserted(database, connection, chain, folded), folded, check=False, progress=progress)
            check_nouns(folded.states)
        except BrokenLogError as broken:
            raise chain.located(broken) from None
        chain.check_redactions()
        write_views(database, connection, folded.states)
        database.dialect.move_head(connection, folded.head.position, folded.head.hash, folded.head.at)
    return chain.whole()


def _inserted(
    database: Database, connection: Connection, chain: LogFiles, folded: Folded
) -> Iterator[list[Event]]:
    """The files' events in chunks, each in the store, with its snapshots, before the next is read."""
    events = chain.events()
    while chunk := list(islice(events, CHUNK)):
        chain.check_genesis()
        database.dialect.insert(connection, tables.events, chunk)
        yield chunk
        write_snapshots(database.dialect, connection, chunk, folded.states)
