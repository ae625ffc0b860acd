"""Watches are the log's tail: nothing is lost, doubled or out of order, and nobody waits for a slow watcher."""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import httpx
import pytest
from kubernetes import client, watch

from tests.support.clusters import LOCAL, Stepped, node
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, served
from volsched.api.kubernetes.negotiation import PLAIN
from volsched.api.kubernetes.resources import RequestTarget, parse_path
from volsched.api.kubernetes.watch_handlers import read_changes, watch_objects
from volsched.api.services import Services
from volsched.api.watch_cache import Fan, Tail, WatchBatch
from volsched.log.database import Database
from volsched.log.retention.archive import archive
from volsched.runtime.clock import SECOND, system_clock
from volsched.runtime.writer import Writer

NODES = "/api/v1/nodes"
MERGE = {"content-type": "application/merge-patch+json"}
Event = tuple[str, str, int]
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def watching(api: Served, query: str = "", *, accept: str = "application/json") -> Iterator[Iterator[Any]]:
    """The events of a watch on nodes, as they come."""
    asked = f"{NODES}?watch=true&timeoutSeconds={HANG_SECONDS}{query}"
    with (
        httpx.Client(base_url=api.url, timeout=HANG_SECONDS) as http,
        http.stream("GET", asked, headers={"accept": accept}) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        yield map(json.loads, answer.iter_lines())


def told(event: Any) -> Event:
    metadata = event["object"]["metadata"]
    return event["type"], metadata["name"], int(metadata["resourceVersion"])


def label(api: Served, name: str, **labels: str | None) -> None:
    answer = api.http.patch(f"{NODES}/{name}", headers=MERGE, json={"metadata": {"labels": labels}})
    assert answer.status_code == 200


def story(api: Served) -> list[Event]:
    """A few changes, and what a watch from the beginning has to tell of them."""
    api.create(node("a"), node("b"))
    label(api, "a", tier="x")
    api.http.delete(f"{NODES}/a").raise_for_status()
    api.create(node("a"))
    return [("ADDED", "a", 1), ("ADDED", "b", 2), ("MODIFIED", "a", 3), ("DELETED", "a", 4), ("ADDED", "a", 5)]


def take(events: Iterator[Any], count: int) -> list[Event]:
    return [told(next(events)) for _ in range(count)]


@pytest.mark.parametrize("since", [1, 2, 3, 4])
def test_a_watch_goes_on_from_any_version(api: Served, since: int) -> None:
    expected = story(api)[since:]
    with watching(api, f"&resourceVersion={since}") as events:
        assert take(events, len(expected)) == expected
        label(api, "b", tier="y")
        assert take(events, 1) == [("MODIFIED", "b", 6)]


def test_a_watch_goes_on_from_a_version_that_is_no_longer_in_memory(database: Database) -> None:
    with served(database, ring_size=4) as api:
        expected = story(api)
        for number in range(30):
            api.create(node(f"n{number:02}"))
            expected.append(("ADDED", f"n{number:02}", 6 + number))
        with watching(api, "&resourceVersion=1") as events:
            assert take(events, 34) == expected[1:]
            api.create(node("last"))
            assert take(events, 1) == [("ADDED", "last", 36)]


def test_a_watch_without_a_version_begins_with_what_is_there(api: Served) -> None:
    story(api)
    with watching(api) as events:
        assert take(events, 2) == [("ADDED", "a", 5), ("ADDED", "b", 2)]
        api.create(node("c"))
        assert take(events, 1) == [("ADDED", "c", 6)]


def test_initial_events_end_with_a_bookmark(api: Served) -> None:
    story(api)
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with watching(api, query) as events:
        take(events, 2)
        end = next(events)
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end["object"]["metadata"]["resourceVersion"] == "5"


def test_an_object_that_begins_or_ceases_to_match_comes_or_goes(api: Served) -> None:
    api.create(node("a"), node("b"))
    with watching(api, "&labelSelector=tier%3Dx&resourceVersion=2") as events:
        label(api, "a", tier="x")
        label(api, "b", tier="z")
        label(api, "a", more="1")
        label(api, "a", tier=None)
        assert take(events, 3) == [("ADDED", "a", 3), ("MODIFIED", "a", 5), ("DELETED", "a", 6)]


def test_one_object_is_watched_by_its_name(api: Served) -> None:
    api.create(node("a"), node("b"))
    with watching(api, "&fieldSelector=metadata.name%3Db&resourceVersion=2") as events:
        label(api, "a", tier="x")
        label(api, "b", tier="x")
        assert take(events, 1) == [("MODIFIED", "b", 4)]


def test_decisions_about_an_object_are_no_change_of_it(up: Served) -> None:
    """Assumptions are events of the object's stream, but no versions of it."""
    from tests.support.clusters import LOCAL, claim, pod, volume

    up.create(node("n1"), LOCAL, volume("v", "1Gi", "n1"), claim("c", "1Gi"), pod("p", "c"))
    for event in watch.Watch().stream(up.core.list_namespaced_pod, "default", timeout_seconds=HANG_SECONDS):
        if event["object"].status.phase == "Running":
            break
    asked = "/api/v1/persistentvolumes?watch=true&resourceVersion=1&timeoutSeconds=1"
    lines = [json.loads(line) for line in up.http.get(asked).iter_lines()]
    versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in lines]
    assert versions == sorted(set(versions))
    for line in lines:
        del line["object"]["metadata"]["resourceVersion"]
    assert all(before["object"] != after["object"] for before, after in itertools.pairwise(lines))


def test_a_watch_that_ends_says_up_to_where_it_was(api: Served) -> None:
    """Then a client that watches a quiet kind need not list again because others were busy."""
    story(api)
    asked = "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=1"

    def last_version() -> str:
        (line,) = api.http.get(asked).iter_lines()
        assert json.loads(line)["type"] == "BOOKMARK"
        return str(json.loads(line)["object"]["metadata"]["resourceVersion"])

    wait_until(lambda: last_version() == "5", told=last_version)


@pytest.mark.parametrize("version", ["6", "999999"])
def test_a_watch_from_the_future_has_to_list_again(api: Served, version: str) -> None:
    story(api)
    with watching(api, f"&resourceVersion={version}") as events:
        (refused,) = events
    assert refused["type"] == "ERROR"
    assert (refused["object"]["code"], refused["object"]["reason"]) == (410, "Expired")


def test_a_watch_from_the_archived_past_has_to_list_again(sqlite: Database, tmp_path: Path) -> None:
    with served(sqlite) as api:
        story(api)
    archive(sqlite, until=4, out=tmp_path / "past.jsonl", now=system_clock() + 600 * SECOND)
    with served(sqlite) as api:
        with pytest.raises(client.ApiException) as gone:
            list(watch.Watch().stream(api.core.list_node, resource_version="2", timeout_seconds=HANG_SECONDS))
        assert gone.value.status == 410
        # The log is all there is: what lies in no archive can be followed.
        with watching(api, "&resourceVersion=4") as events:
            assert take(events, 1) == [("ADDED", "a", 5)]


def test_pages_of_the_archived_past_are_gone(sqlite: Database, tmp_path: Path) -> None:
    with served(sqlite) as api:
        story(api)
        token = api.core.list_node(limit=1).metadata._continue
        label(api, "b", tier="y")
        label(api, "b", tier="q")
        archive(sqlite, until=6, out=tmp_path / "past.jsonl", now=system_clock() + 600 * SECOND)
        label(api, "b", tier="z")
        with pytest.raises(client.ApiException) as gone:
            api.core.list_node(limit=1, _continue=token)
        assert gone.value.status == 410


def test_tables_are_watched_too(api: Served) -> None:
    api.create(node("a"))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    with watching(api, accept=table) as events:
        first = next(events)["object"]
        label(api, "a", tier="x")
        second = next(events)["object"]
    assert first["columnDefinitions"][0] == {
        "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0,
    }  # fmt: skip
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "a"
    assert second["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_a_slow_watcher_is_cut_off_and_slows_nobody(sqlite: Database) -> None:
    """It never reads. Others get every event at once; when it reads at last, it is told to list again."""
    bulk = "x" * 250_000
    with served(sqlite, ring_size=8) as api:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, port = api.url.removeprefix("http://").split(":")
        slow.settimeout(HANG_SECONDS)
        slow.connect((host, int(port)))
        slow.sendall(f"GET {NODES}?watch=true HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = slow.recv(64)
        assert head.startswith(b"HTTP/1.1 200")
        with watching(api, "&resourceVersion=0") as events:
            for number in range(60):
                wanted = node(f"n{number}")
                wanted["metadata"]["annotations"] = {"bulk": bulk}
                api.create(wanted)
                assert told(next(events)) == ("ADDED", f"n{number}", number + 1)
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            part = slow.recv(1 << 20)
            assert part, "closed without a word"
            rest = (rest + part)[-100_000:]
        slow.close()
        assert b'"type":"ERROR"' in rest
        assert b'"code":410' in rest
        assert "volsched_watches_cut_off 1.0" in api.http.get("/metrics").text


def test_many_watchers_see_the_same_in_the_same_order(sqlite: Database) -> None:
    watchers, writers, each = 12, 3, 20
    with served(sqlite) as api:
        seen: list[list[Event]] = [[] for _ in range(watchers)]
        ready = threading.Barrier(watchers + 1)

        def follow(mine: list[Event]) -> None:
            with watching(api) as events:
                mine.append(told(next(events)))
                ready.wait(HANG_SECONDS)
                while len(mine) < 1 + writers * each:
                    mine.append(told(next(events)))

        def write(number: int) -> None:
            with httpx.Client(base_url=api.url, timeout=HANG_SECONDS) as http:
                for count in range(each):
                    http.post(NODES, json=node(f"n{number}-{count}")).raise_for_status()

        api.create(node("first"))
        threads = [threading.Thread(target=follow, args=(mine,), daemon=True) for mine in seen]
        for thread in threads:
            thread.start()
        ready.wait(HANG_SECONDS)
        threads += [threading.Thread(target=write, args=(number,), daemon=True) for number in range(writers)]
        for thread in threads[watchers:]:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
    assert [version for _, _, version in seen[0]] == list(range(1, 2 + writers * each))
    assert all(mine == seen[0] for mine in seen)


def test_watches_end_when_the_server_does(sqlite: Database) -> None:
    with served(sqlite) as api:
        asked = f"{NODES}?watch=true&timeoutSeconds=300"
        with httpx.Client(base_url=api.url, timeout=HANG_SECONDS) as http, http.stream("GET", asked) as answer:
            api.server.should_exit = True
            assert list(answer.iter_lines()) == []


@dataclass(slots=True)
class Meanwhile(Services):
    """Somebody else writes while a request reads."""

    happen: Callable[[], None] = lambda: None

    async def read(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        found = call(*args, **named)
        if call is read_changes:
            self.happen()
        return found


def test_what_comes_while_a_watch_catches_up_is_in_it(sqlite: Database) -> None:
    """A client that comes back after a restart, when nothing of its kind has happened since."""
    world = Stepped(sqlite, [node("old"), LOCAL])
    batches: list[WatchBatch] = []
    tail, fan = Tail(sqlite, batches.append), Fan()

    async def watched() -> tuple[int, list[int]]:
        fan.receive(read_on())

        def happen() -> None:
            services.happen = lambda: None
            world.create(node("new"))
            fan.receive(read_on())

        services = Meanwhile(sqlite, Writer(sqlite), fan, system_clock, "api/test", happen=happen)
        place = parse_path(NODES)
        assert isinstance(place, RequestTarget)
        begun = await watch_objects(services, place, {"watch": "true", "resourceVersion": "1"}, PLAIN)
        return begun.first.count(b"\n"), [it.position for it in fan.rings["node"].since(begun.position) or ()]

    def read_on() -> WatchBatch:
        tail.step(0)
        return batches[-1]

    assert asyncio.run(watched()) == (0, [3])
