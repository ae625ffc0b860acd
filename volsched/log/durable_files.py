"""Files of the log on disk: plain or compressed, and complete or not there at all."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO
from uuid import uuid4

from volsched.log.errors import StoreError
from volsched.log.events.envelope import Event
from volsched.log.retention.export import ExportError, Manifest, write_jsonl
from volsched.log.retention.import_files import verify_export

COMPRESSED = ".gz"
LEVEL = 6
"""Of compression: half the time of gzip's own default, for files a few per cent larger."""
PRIVATE = 0o600
"""For their owner: manifests hold what people wrote into them, and in a backup tokens stand beside the log."""
ERRORS = "backslashreplace"
"""What is not UTF-8 is shown as it is, and whoever parses the line says which line it is."""


def lines_of_file(path: Path) -> Iterator[str]:
    """The lines of a file, opened when the first is asked for; ExportError where it cannot be uncompressed."""
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
    """Write a file, read it back, and give it its name only then; an existing one is never replaced.

    Whoever is killed meanwhile leaves a file `part-…` behind, which nobody takes for a whole one.
    """
    aside = path.with_name(f"part-{uuid4().hex[:8]}-{path.name}")
    try:
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE)) as raw:
            with _text(raw, path) as out:
                fill(out)
            os.fsync(raw.fileno())
        if not is_right(aside):
            raise StoreError(f"{path}: what was read back is not what was written; check the disk")
        # A link and not a rename, which would replace a file that came to be meanwhile.
        os.link(aside, path)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}; check the path, its permissions and the room on the disk"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink()


def _text(raw: IO[bytes], path: Path) -> TextIOWrapper:
    """Text into a file that stays open behind it, to be synced."""
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
