"""What the services say: each writes into a file of its own, and the lines of all are merged as they appear.

A file and not a pipe: a supervisor that dies must not take its services with it when they next print something.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from volsched.runtime.clock import rfc3339

MERGED = "merged.log"
MOST_BYTES = 16 * 1024 * 1024
"""At that size a service's file is emptied, and the merged one put aside: two of those are kept."""
LONGEST_LINE = 64 * 1024
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Line:
    at: str
    instance: str
    text: str


@dataclass(slots=True)
class Merger:
    """Follows the files of a directory; a `step(now)` moves whole lines that are new into the merged file."""

    directory: Path
    told: Callable[[Line], None] = lambda _: None
    _read: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What was there before us was merged by the supervisor before us.
        self._read = {it.name: it.stat().st_size for it in self._files()}

    def step(self, now: int) -> int:
        at, lines = rfc3339(now), list[Line]()
        for file in self._files():
            lines += [Line(at, file.stem, text) for text in self._new_lines(file)]
        if lines:
            merged = self.directory / MERGED
            if merged.exists() and merged.stat().st_size > MOST_BYTES:
                merged.replace(merged.with_suffix(".1"))
            with merged.open("a", encoding="utf-8") as out:
                out.writelines(f"{it.at}\t{it.instance}\t{it.text}\n" for it in lines)
        for line in lines:
            self.told(line)
        return len(lines)

    def _files(self) -> list[Path]:
        # What is found at one look is told in the order in which the files were last written.
        found = (it for it in self.directory.glob("*.log") if it.name != MERGED)
        return sorted(found, key=lambda it: (it.stat().st_mtime_ns, it.name))

    def _new_lines(self, file: Path) -> list[str]:
        start, size = self._read.get(file.name, 0), file.stat().st_size
        if size <= start:
            return []
        with file.open("rb") as opened:
            opened.seek(start)
            found = opened.read(MOST_BYTES)
        end = found.rfind(b"\n") + 1
        if end == 0 and len(found) < LONGEST_LINE:
            return []
        whole = found[: end or len(found)]
        self._read[file.name] = start + len(whole)
        if self._read[file.name] == size > MOST_BYTES:
            # Its writer appends, so it goes on at the beginning.
            os.truncate(file, 0)
            self._read[file.name] = 0
        return whole.decode(errors="replace").splitlines()


def read_lines(directory: Path) -> Iterator[Line]:
    """All that were merged and are still kept, the oldest first."""
    merged = directory / MERGED
    for file in (merged.with_suffix(".1"), merged):
        if file.exists():
            with file.open(encoding="utf-8", errors="replace") as opened:
                yield from filter(None, map(parse_line, opened))


def parse_line(text: str) -> Line | None:
    """None where it is not whole yet."""
    parts = text.removesuffix("\n").split("\t", 2)
    return Line(*parts) if len(parts) == 3 and text.endswith("\n") else None


def following(directory: Path) -> Iterator[Line]:
    """Lines as they are merged from now on, for ever; also after the file was put aside for a new one."""
    merged, held = directory / MERGED, ""
    merged.touch()
    opened = merged.open(encoding="utf-8", errors="replace")
    opened.seek(0, os.SEEK_END)
    try:
        while True:
            held += opened.readline()
            line = parse_line(held)
            if line is not None:
                held = ""
                yield line
            elif merged.exists() and merged.stat().st_ino != os.fstat(opened.fileno()).st_ino:
                opened.close()
                opened, held = merged.open(encoding="utf-8", errors="replace"), ""
            else:
                time.sleep(LOOK_SECONDS)
    finally:
        opened.close()
