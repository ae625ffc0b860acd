"""A watch as bytes: chunks become lines, lines become events. Pure, so that every cut can be tested."""

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
"""How a server begins the line of an object: in the order of its types, which has not changed since 1.0."""
LONGEST_LINE = 64 * 1024 * 1024
"""More than any object can have; an answer with a longer line is no watch."""


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
    """Complete lines, however the chunks are cut. The bytes after the last line end are dropped: a connection that
    broke in the middle of an event did not deliver it."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        if len(buffer) > LONGEST_LINE:
            raise UnansweredError("the watch sends a line without an end")
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
        raise UnansweredError(f"the watch sends what is no event: {line[:80]!r}") from error
