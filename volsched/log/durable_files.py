"""Files of the log on disk: complete or absent, and several consecutive ones read as one history."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO
from uuid import uuid4

from sqlalchemy import Connection

from volsched.log import tables
from volsched.log.base import write_snapshots
from volsched.log.batch import lock_head
from volsched.log.database import Database
from volsched.log.errors import BrokenLogError, StoreError
from volsched.log.events.envelope import GENESIS, REDACTION, Event, seals_in
from volsched.log.integrity.replay import Folded, Progress, check_nouns, fold_chunks
from volsched.log.retention.export import (
    CHUNK,
    ExportError,
    Manifest,
    at_line,
    read_events,
    read_manifest,
    write_jsonl,
)
from volsched.log.transaction import write_views


def read_first_manifest(lines: Iterator[str]) -> Manifest:
    """The manifest of the first file of a whole history; StoreError where the file begins later."""
    manifest = read_manifest(lines)
    _check_genesis(manifest)
    return manifest


def _check_genesis(begin: Manifest) -> None:
    if begin.first != 1 or begin.before != GENESIS:
        raise StoreError(
            f"the first file begins at position {begin.first} and the history at 1; give the files before it "
            "too, or check these files alone with: volsched import-log --check"
        )


# Consecutive files of the log, such as archives and an export of the rest, read as one history.
#
# They can be checked without any store, and a store can be created from them.


@dataclass(slots=True)
class LogFiles:
    """Consecutive files, read as one; a file's lines are read only when it is reached."""

    files: Sequence[Iterable[str]]
    manifests: list[Manifest] = field(default_factory=list)
    """The manifests of the files reached so far."""
    sealed: dict[int, bytes] = field(default_factory=dict)
    """Seals of other events, from the redactions among the events reached so far."""

    def events(self) -> Iterator[Event]:
        """All events in order; ExportError with the number of the file, at the first that is wrong."""
        for number, lines in enumerate(self.files):
            rest = iter(lines)
            try:
                self._take(read_manifest(rest))
                for event in read_events(rest, self.manifests[-1]):
                    if event.type == REDACTION:
                        self.sealed |= seals_in(event.data)
                    yield event
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
        """Raises unless the first file begins at the first event of the log."""
        _check_genesis(self.manifests[0])

    @property
    def redacted(self) -> dict[int, bytes]:
        """Seals of redacted events, from the files themselves."""
        return {at: seal for manifest in self.manifests for at, seal in manifest.redacted.items()}

    def check_redactions(self) -> None:
        """Raises unless the files hold the records of all their redactions; else they cannot become a store."""
        unknown = min(self.redacted.items() - self.sealed.items(), default=None)
        if unknown is not None:
            raise StoreError(
                f"position {unknown[0]} was redacted, and that is recorded after {self.manifests[-1].last}, where "
                "the files end; give the files that follow too, such as an export of the rest"
            )

    def whole(self) -> Manifest:
        """The manifest of all files as one."""
        begin, end = self.manifests[0], self.manifests[-1]
        return replace(
            end,
            first=begin.first,
            before=begin.before,
            count=end.last - begin.first + 1,
            redacted=self.redacted,
        )

    def located(self, broken: BrokenLogError) -> ExportError:
        """The error with the file and line of an event that differs from the exported one."""
        position = broken.finding.position or self.manifests[-1].last
        number = next(index for index, it in enumerate(self.manifests) if position <= it.last)
        error = at_line(broken, self.manifests[number])
        error.file = number
        return error


def verify_export(*files: Iterable[str]) -> Manifest:
    """Check consecutive files without any store; returns the manifest of them all."""
    chain = LogFiles(files)
    for _ in chain.events():
        pass
    return chain.whole()


def import_log(database: Database, *files: Iterable[str], progress: Progress | None = None) -> Manifest:
    """Turn an empty store into the files' log, views included; all or nothing."""
    chain = LogFiles(files)
    with database.write() as connection:
        head = lock_head(database, connection)
        if head.position != 0:
            raise StoreError(
                f"the store has {head.position} events already, and a log is imported into an empty one; name "
                "another with --db"
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


COMPRESSED = ".gz"
LEVEL = 6
"""Compression level: half the time of gzip's default, for files a few per cent larger."""
PRIVATE = 0o600
"""Owner only: manifests may hold secrets of users, and a backup also has tokens."""
ERRORS = "backslashreplace"
"""Bytes that are not UTF-8 are kept visible; the parser of the line reports which line it is."""


def lines_of_file(path: Path) -> Iterator[str]:
    """The lines of a file, opened when the first is read; ExportError where it cannot be uncompressed."""
    if path.suffix != COMPRESSED:
        with path.open(encoding="utf-8", errors=ERRORS) as lines:
            yield from lines
        return
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors=ERRORS) as lines:
            yield from lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ExportError(f"the compressed file is damaged or cut ({error}); restore a copy of it") from None


def write_durably(path: Path, manifest: Manifest, events: Iterable[Event]) -> None:
    """Write events to a file, and read them back."""

    def is_right(aside: Path) -> bool:
        return verify_export(lines_of_file(aside)) == manifest

    write_whole(path, lambda out: write_jsonl(out, manifest, events), is_right)


def write_whole(path: Path, fill: Callable[[IO[str]], None], is_right: Callable[[Path], bool]) -> None:
    """Write a file, read it back, and only then give it its name; an existing file is never replaced."""
    with written_aside(path) as aside:
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE)) as raw:
            with _text(raw, path) as out:
                fill(out)
            os.fsync(raw.fileno())
        if not is_right(aside):
            raise StoreError(f"{path}: the data read back differs from the data written; check the disk")
        # A link, not a rename, which would replace a file created meanwhile.
        os.link(aside, path)
        sync_directory(path.parent)


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Where to write a file before it gets its name; removed in the end. StoreError where the disk refuses.

    A process killed meanwhile leaves a file `part-…`, which is never mistaken for a complete one.
    """
    aside = path.with_name(f"part-{uuid4().hex[:8]}-{path.name}")
    try:
        yield aside
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}; check the path, its permissions and the free disk space"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink()


def _text(raw: IO[bytes], path: Path) -> TextIOWrapper:
    """Text into a file that stays open, so that it can be synced."""
    if path.suffix == COMPRESSED:
        # GzipFile closes only what it opened itself.
        return TextIOWrapper(gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=LEVEL), "utf-8", newline="")
    return open(os.dup(raw.fileno()), "w", encoding="utf-8", newline="")


def sync_directory(path: Path) -> None:
    """A new name is durable once its directory is."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
