"""Decodes a watch: chunks to lines, lines to events. Pure, so that every split into chunks can be tested."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from volsched.cluster.port import KnownVersions, UnansweredError

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_OBJECT_HEAD = re.compile(
    rb'\{"type":"ADDED","object":\{"kind":"\w+","apiVersion":"[\w./]+","metadata":\{"name":"([^"\\]+)",'
    rb'(?:"generateName":"[^"\\]*",)?(?:"namespace":"([^"\\]+)",)?"uid":"([^"\\]+)","resourceVersion":"([0-9]+)"'
)
"""The start of an object's line: fields in the order of the Go types, which has not changed since 1.0."""
LONGEST_LINE = 64 * 1024 * 1024
"""More than any object can have; a response with a longer line is not a watch."""


@dataclass(frozen=True, slots=True)
class WatchLine:
    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str((self.object.get("metadata") or {}).get("resourceVersion", ""))

    @property
    def ends_initial_events(self) -> bool:
        marks = (self.object.get("metadata") or {}).get("annotations") or {}
        return self.type == "BOOKMARK" and marks.get(INITIAL_EVENTS_END) == "true"


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines, however the chunks are split. The bytes after the last line end are dropped: an event whose
    connection broke in the middle was not delivered."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        if len(buffer) > LONGEST_LINE:
            raise UnansweredError("the watch sent a line that is too long")
        *complete, rest = bytes(buffer).split(b"\n") if b"\n" in chunk else (bytes(buffer),)
        if complete:
            buffer = bytearray(rest)
        yield from (line for line in complete if line.strip())


def unchanged_key(line: bytes, known: KnownVersions) -> str | None:
    """The object's key, if it has the known version; None where it has another, or the line's head is unusual.

    The rest of the line is not decoded: after a restart nearly every object of a cluster is unchanged.
    """
    head = _OBJECT_HEAD.match(line) if known else None
    if head is None:
        return None
    name, namespace, uid, version = head.groups()
    key = name.decode() if namespace is None else f"{namespace.decode()}/{name.decode()}"
    return key if known.get(key) == (uid.decode(), version.decode()) else None


def watch_line(line: bytes) -> WatchLine:
    try:
        read = orjson.loads(line)
        return WatchLine(str(read["type"]), read["object"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UnansweredError(f"the watch sent a line that is not an event: {line[:80]!r}") from error
