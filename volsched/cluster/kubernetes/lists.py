"""Lists of whole kinds: streamed where the server supports it, otherwise page by page. No list is held in memory.

If a server refuses to stream, pages are used from then on. If pages expire repeatedly before the last is read, the
kind is read from the server's cache in one piece: perhaps slightly stale, but complete.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.cluster.kubernetes import requests
from volsched.cluster.kubernetes.metadata_proof import ObjectVersion
from volsched.cluster.kubernetes.requests import METADATA_LIST
from volsched.cluster.kubernetes.responses import StreamedListRefusedError, error_in_stream
from volsched.cluster.kubernetes.transport import Transport
from volsched.cluster.kubernetes.watch_lines import lines, unchanged_key, watch_line
from volsched.cluster.port import (
    NOTHING_KNOWN,
    ExpiredError,
    KnownVersions,
    ListPage,
    Manifest,
    UnansweredError,
)
from volsched.cluster.projection import Projection, everything
from volsched.kube.kinds import KINDS, key_of

STREAM_SECONDS = 600
"""The timeout of a streamed list, which we end as soon as it is complete."""
MOST_EXPIRIES = 3


@dataclass(slots=True)
class Lists:
    transport: Transport
    streams: bool = True
    """Whether the server streams lists, as far as we know."""
    project: Projection = everything
    """Applied to each object as it is decoded, so that dropped fields take no memory."""
    _expiries: dict[str, int] = field(default_factory=dict)

    def pages(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        if self.streams:
            try:
                yield from self._streamed_pages(kind, known)
                return
            except StreamedListRefusedError:
                self.streams = False
        try:
            yield from self._requested_pages(kind, known)
        except ExpiredError:
            self._expiries[kind] = self._expiries.get(kind, 0) + 1
            raise
        self._expiries.pop(kind, None)

    def versions(self, kind: str) -> Iterator[tuple[tuple[ObjectVersion, ...], str | None]]:
        """Key, uid and version of every object, page by page; the last has the list's version."""
        for items, cursor in self._raw_pages(kind, accept=METADATA_LIST):
            names = ((key_of(kind, item), item["metadata"]) for item in items)
            yield tuple(ObjectVersion(key, it["uid"], it["resourceVersion"]) for key, it in names), cursor

    def head(self, kind: str) -> str:
        """The present version of the kind, from the server's store, not from a cache."""
        request = requests.list_page(kind, accept=METADATA_LIST)
        answer = self.transport.call(_with_limit(request, 1))
        return str(answer.body["metadata"]["resourceVersion"])

    def _requested_pages(self, kind: str, known: KnownVersions) -> Iterator[ListPage]:
        from_cache = self._expiries.get(kind, 0) >= MOST_EXPIRIES
        kind_fields = {"apiVersion": KINDS[kind].api_version, "kind": kind}
        for items, cursor in self._raw_pages(kind, from_cache=from_cache):
            objects, unchanged = [], []
            for item in items:
                key, metadata = key_of(kind, item), item["metadata"]
                if known.get(key) == (metadata["uid"], metadata["resourceVersion"]):
                    unchanged.append(key)
                # Items of a list have neither kind nor apiVersion.
                elif (kept := self.project(kind, {**kind_fields, **item})) is not None:
                    objects.append(kept)
            yield ListPage(tuple(objects), cursor, unchanged=tuple(unchanged))

    def _raw_pages(
        self, kind: str, *, from_cache: bool = False, accept: str = requests.JSON
    ) -> Iterator[tuple[list[dict[str, Any]], str | None]]:
        token = ""
        while True:
            request = requests.list_page(kind, token=token, from_cache=from_cache, accept=accept)
            body = self.transport.call(request).body
            token = body["metadata"].get("continue") or ""
            yield body.get("items") or [], None if token else str(body["metadata"]["resourceVersion"])
            if not token:
                return

    def _streamed_pages(self, kind: str, known: KnownVersions) -> Iterator[ListPage]:
        request = requests.streamed_list(kind, timeout_seconds=STREAM_SECONDS)
        objects: list[Manifest] = []
        unchanged: list[str] = []
        with self.transport.stream(request) as stream:
            for line in lines(stream.chunks()):
                if (key := unchanged_key(line, known)) is not None:
                    unchanged.append(key)
                    continue
                event = watch_line(line)
                match event.type:
                    case "ADDED":
                        kept = self.project(kind, event.object)
                        objects += () if kept is None else (kept,)
                    case "BOOKMARK" if event.ends_initial_events:
                        yield ListPage(tuple(objects), event.version, unchanged=tuple(unchanged))
                        return
                    case "BOOKMARK":
                        continue
                    case "ERROR":
                        raise error_in_stream(request, event.object)
                    case _:
                        raise ExpiredError(kind, f"list {kind}: it changed while it was streamed; list again")
                if len(objects) >= requests.PAGE_OBJECTS:
                    yield ListPage(tuple(objects))
                    objects = []
        raise UnansweredError(f"list {kind}: the stream ended before the list was complete; list again")


def _with_limit(request: requests.ApiRequest, limit: int) -> requests.ApiRequest:
    return replace(request, query={**request.query, "limit": str(limit)})
