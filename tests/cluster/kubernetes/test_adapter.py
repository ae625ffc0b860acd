"""The adapter against what a real server answered, over a real connection."""

import gzip
import json
import re
import socket
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cluster.conftest import UNLIMITED
from tests.support.patience import wait_until
from tests.support.recorded_server import Recorded, list_answer, recordings, replaying
from volsched.cluster.kubernetes.adapter import KubernetesCluster, attach, clock_skew
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.kubernetes.responses import UnservedError
from volsched.cluster.kubernetes.streams import reading
from volsched.cluster.port import (
    CallRefusedError,
    ExpiredError,
    ListPage,
    Permission,
    PortChange,
    Refusal,
    UnansweredError,
    whole,
)

VOLUME = "PersistentVolume"


def adapter(recorded: Recorded, *, streamed: bool = True, queue: int = 100, **access: Any) -> KubernetesCluster:
    transport = attach(ClusterAccess(server=recorded.url, **access), bucket=TokenBucket(UNLIMITED, UNLIMITED))
    cluster = KubernetesCluster(transport, kinds=(VOLUME,), random=Random(1), queue=queue)
    cluster.lists.streams = streamed
    return cluster


@contextmanager
def watching(cluster: KubernetesCluster) -> Iterator[Callable[[str], tuple[list[PortChange], str]]]:
    with reading(list(cluster.streams.values())):

        def watch(cursor: str) -> tuple[list[PortChange], str]:
            watched = cluster.watch({VOLUME: cursor})
            return list(watched.changes), watched.cursors[VOLUME]

        yield watch


def names(page: ListPage) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in page.objects]


# Lists ---------------------------------------------------------------------------------------------------


def test_pages_follow_one_another_and_the_last_has_the_cursor() -> None:
    with replaying("3", "4") as recorded:
        first, last = adapter(recorded, streamed=False).list(VOLUME)
    version = recordings()["4"]["response"]["body"]["metadata"]["resourceVersion"]
    assert (first.cursor, last.cursor) == (None, version)
    assert {manifest["kind"] for manifest in (*first.objects, *last.objects)} == {VOLUME}
    token = recordings()["3"]["response"]["body"]["metadata"]["continue"]
    assert [request.query for request in recorded.requests] == [
        {"limit": "500"},
        {"limit": "500", "continue": token},
    ]


def test_an_empty_kind_has_a_cursor() -> None:
    with replaying("1") as recorded:
        assert whole(adapter(recorded, streamed=False).list(VOLUME)).objects == ()


def test_a_page_that_expired_ends_the_list_and_its_inconsistent_token_is_never_used() -> None:
    with replaying("3", "5", "3", "5", "3", "5", "2") as recorded:
        cluster = adapter(recorded, streamed=False)
        for _ in range(3):
            with pytest.raises(ExpiredError) as caught:
                list(cluster.list(VOLUME))
            assert caught.value.kind == VOLUME
        # After three of them, whatever the cache has, in one piece.
        assert whole(cluster.list(VOLUME)).objects
    inconsistent = recordings()["5"]["response"]["body"]["metadata"]["continue"]
    assert inconsistent not in {request.query.get("continue") for request in recorded.requests}
    assert recorded.requests[-1].query == {"resourceVersion": "0"}


def test_a_streamed_list_ends_with_its_mark() -> None:
    with replaying("13") as recorded:
        listed = whole(adapter(recorded).list(VOLUME))
    lines = [line["event"] for line in recordings()["13"]["response"]["lines"]]
    end = next(index for index, it in enumerate(lines) if it["type"] == "BOOKMARK")
    assert list(listed.objects) == [it["object"] for it in lines[:end]]
    assert listed.cursor == lines[end]["object"]["metadata"]["resourceVersion"]
    assert recorded.requests[0].query["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("id_", ["13b", "14d"], ids=["of nothing", "of a server without a watch cache"])
def test_other_streamed_lists_end_with_their_mark(id_: str) -> None:
    with replaying(id_) as recorded:
        listed = whole(adapter(recorded).list(VOLUME))
    added = [it for it in recordings()[id_]["response"]["lines"] if it["event"]["type"] == "ADDED"]
    assert len(listed.objects) == len(added)


def test_a_streamed_list_without_its_mark_is_no_list() -> None:
    """As a server answers one that does not allow bookmarks: all that is there, and no end."""
    with replaying("14c") as recorded, pytest.raises(UnansweredError):
        list(adapter(recorded).list(VOLUME))


def test_a_large_list_comes_compressed() -> None:
    whole_list = json.loads(gzip.decompress(b64decode(recordings()["18"]["response"]["body_gzip_base64"])))
    with replaying("18") as recorded:
        listed = [it for page in islice(adapter(recorded, streamed=False).list(VOLUME), 1) for it in page.objects]
    assert len(listed) == len(whole_list["items"]) == 40
    assert "gzip" in recorded.requests[0].headers["accept-encoding"]


def test_a_server_that_is_stopped_ends_its_watches_and_nothing_is_lost() -> None:
    expected = told("20")
    with replaying("20", list_answer("9999"), "10", list_answer("9999"), "8") as recorded:
        cluster = adapter(recorded)
        with watching(cluster) as watch:
            changes = follow(watch, "583", len(expected) + 1)
    assert [(it.key, it.version, it.manifest is None) for it in changes[: len(expected)]] == expected


def test_a_server_that_is_not_asked_for_pages_from_its_cache_answers_whole() -> None:
    with replaying("6b") as recorded:
        assert len(whole(adapter(recorded, streamed=False).list(VOLUME)).objects) > 2


@pytest.mark.parametrize("id_", ["21", "23", "24", "25", "31", "31b", "57"])
def test_a_patch_is_sent_as_a_real_server_took_it(id_: str) -> None:
    exchange = recordings()[id_]
    *_, plural, name = exchange["request"]["path"].split("/")
    kind = VOLUME if plural == "persistentvolumes" else "PersistentVolumeClaim"
    body = exchange["request"]["body"]
    named = {field: value for field, value in body["metadata"].items() if field != "resourceVersion"}
    patch = {**body, "metadata": named}
    key = name if kind == VOLUME else f"shop/{name}"
    with replaying(id_) as recorded:
        answer = adapter(recorded).patch(kind, key, patch, version=body["metadata"]["resourceVersion"])
    assert answer["metadata"]["resourceVersion"] == exchange["response"]["body"]["metadata"]["resourceVersion"]
    (request,) = recorded.requests
    assert (request.method, request.path) == (exchange["request"]["method"], exchange["request"]["path"])
    assert request.body == body
    assert request.headers["content-type"] == "application/merge-patch+json"


@pytest.mark.parametrize("id_", ["54c", "54e"], ids=["gone at once", "held by a finalizer"])
def test_a_deletion_that_is_answered_with_the_object_is_done(id_: str) -> None:
    with replaying(id_) as recorded:
        adapter(recorded).delete(VOLUME, "disk-9", uid="uid-9", version="477")
    preconditions = recordings()["54c"]["request"]["body"]["preconditions"]
    assert recorded.requests[0].body["preconditions"] == preconditions


def test_a_server_that_does_not_stream_is_asked_for_pages_from_then_on() -> None:
    with replaying("14", "2", "2") as recorded:
        cluster = adapter(recorded)
        assert whole(cluster.list(VOLUME)).objects
        assert whole(cluster.list(VOLUME)).objects
    assert ["watch" in request.query for request in recorded.requests] == [True, False, False]


def test_a_streamed_list_that_breaks_off_is_no_list() -> None:
    lines = [line for line in recordings()["13"]["response"]["lines"] if line["event"]["type"] == "ADDED"]
    for ended in ("end of the chunked body", "connection broken (no closing chunk)"):
        broken = {"response": {**recordings()["13"]["response"], "lines": lines, "ended": ended}}
        with replaying(broken) as recorded, pytest.raises(UnansweredError):
            list(adapter(recorded).list(VOLUME))


def test_a_kind_that_is_not_served_is_named() -> None:
    with replaying("19b") as recorded, pytest.raises(UnservedError, match="does not serve PersistentVolume"):
        list(adapter(recorded).list(VOLUME))


def test_metadata_alone_is_asked_for_in_the_form_that_servers_know() -> None:
    with replaying("17") as recorded:
        ((versions, cursor),) = adapter(recorded).versions(VOLUME)
    assert cursor == recordings()["17"]["response"]["body"]["metadata"]["resourceVersion"]
    assert versions[0].uid.startswith("uid-")
    assert recorded.requests[0].headers["accept"].endswith("v=v1")


# Watches -------------------------------------------------------------------------------------------------


def told(recorded_id: str) -> list[tuple[str, str, bool]]:
    events = (line["event"] for line in recordings()[recorded_id]["response"]["lines"])
    return [
        (it["object"]["metadata"]["name"], it["object"]["metadata"]["resourceVersion"], it["type"] == "DELETED")
        for it in events
        if it["type"] in ("ADDED", "MODIFIED", "DELETED")
    ]


def follow(watch: Callable[[str], tuple[list[PortChange], str]], cursor: str, count: int) -> list[PortChange]:
    changes: list[PortChange] = []

    def has_come() -> bool:
        nonlocal cursor
        news, cursor = watch(cursor)
        changes.extend(news)
        return len(changes) >= count

    wait_until(has_come, progress=lambda: len(changes))
    return changes


def test_changes_come_with_their_versions_and_deletions_with_that_of_the_deletion() -> None:
    expected = told("8")
    with replaying("8") as recorded, watching(adapter(recorded)) as watch:
        changes = follow(watch, "1", len(expected))
    assert [(it.key, it.version, it.manifest is None) for it in changes[: len(expected)]] == expected


def test_a_watch_goes_on_from_the_last_event_whether_it_ended_well_or_broke() -> None:
    last = told("20c")[-1][1]
    with replaying("20c", list_answer("9999"), "10", list_answer("9999"), "8") as recorded:
        cluster = adapter(recorded)
        with watching(cluster) as watch:
            follow(watch, "590", len(told("20c")) + 1)
    watches = [request.query for request in recorded.requests if "watch" in request.query]
    assert [query["resourceVersion"] for query in watches[:3]] == ["590", last, last]
    assert all(300 <= int(query["timeoutSeconds"]) <= 600 for query in watches)


def test_a_bookmark_moves_the_cursor_without_a_change() -> None:
    bookmark = recordings()["9e"]["response"]["lines"][-1]["event"]["object"]["metadata"]["resourceVersion"]
    cursor = "1"
    with replaying("9e", list_answer("99999"), "9e") as recorded, watching(adapter(recorded)) as watch:

        def has_moved() -> bool:
            nonlocal cursor
            changes, cursor = watch(cursor)
            assert changes == []
            return cursor == bookmark

        wait_until(has_moved)


def test_an_expired_cursor_is_reported_once_all_before_it_is_reported() -> None:
    with replaying("8", list_answer("99999"), "11") as recorded, watching(adapter(recorded)) as watch:
        changes = follow(watch, "1", len(told("8")))
        cursor = changes[-1].version
        with pytest.raises(ExpiredError) as caught:
            wait_until(lambda: watch(cursor) and False)
        assert caught.value.kind == VOLUME


def test_a_cursor_ahead_of_the_server_is_expired_because_a_watch_would_be_silent_for_ever() -> None:
    with replaying("20c", list_answer("12")) as recorded, watching(adapter(recorded)) as watch:
        cursor = follow(watch, "590", len(told("20c")))[-1].version
        with pytest.raises(ExpiredError, match="restored from a backup or replaced"):
            wait_until(lambda: watch(cursor) and False)


def test_a_watch_without_permission_is_refused_and_the_verb_is_named() -> None:
    with replaying("51d") as recorded, watching(adapter(recorded)) as watch:
        with pytest.raises(CallRefusedError, match=r"watch PersistentVolume: .*forbidden") as caught:
            wait_until(lambda: watch("1") and False)
        assert caught.value.refusal is Refusal.FORBIDDEN
        # A permission does not come by being asked for: it stays so until the next try, half a minute later.
        for _ in range(20):
            with pytest.raises(CallRefusedError):
                watch("1")
        assert len(recorded.requests) == 1


def test_a_full_queue_stops_the_reading_and_loses_nothing() -> None:
    expected = told("8")
    with replaying("8") as recorded:
        cluster = adapter(recorded, queue=1)
        with watching(cluster) as watch:
            assert watch("1") == ([], "1")
            wait_until(lambda: cluster.health()[VOLUME].queued == 1)
            changes = follow(watch, "1", len(expected))
    assert [(it.key, it.version, it.manifest is None) for it in changes[: len(expected)]] == expected


def test_a_kind_is_known_up_to_what_was_taken_and_not_to_what_waits() -> None:
    expected = told("8")
    with replaying("8") as recorded:
        cluster = adapter(recorded)
        with watching(cluster) as watch:
            assert watch("1") == ([], "1")
            wait_until(lambda: cluster.health()[VOLUME].queued == len(expected))
            waiting = cluster.health()[VOLUME].last_heard
            cluster.watch({VOLUME: "1"}, limit=len(expected))
            taken = cluster.health()[VOLUME].last_heard
    assert waiting is not None
    assert taken is not None
    assert waiting < taken


def test_nothing_is_watched_before_somebody_reads() -> None:
    with replaying("8") as recorded, pytest.raises(RuntimeError, match="start the streams"):
        adapter(recorded).watch({VOLUME: "1"})


def test_a_connection_that_goes_silent_is_opened_again_from_the_cursor() -> None:
    """Half-open, as after an upgrade of a control plane: headers, one event, and then nothing for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []
    event = b'{"type":"ADDED","object":{"metadata":{"name":"pv","resourceVersion":"7"}}}\n'
    head = b'{"metadata":{"resourceVersion":"99"},"items":[]}'
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            request = connection.recv(65536)
            asked.append(request.split(b" ")[1])
            if b"watch=1" in asked[-1]:
                chunk = b"%x\r\n%s\r\n" % (len(event), event)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
            else:
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head)
                )

    threading.Thread(target=serve, daemon=True).start()
    access = ClusterAccess(server=f"http://127.0.0.1:{listener.getsockname()[1]}")
    transport = attach(access, bucket=TokenBucket(UNLIMITED, UNLIMITED), silent_seconds=0.3)
    cluster = KubernetesCluster(transport, kinds=(VOLUME,), random=Random(1))
    cursor, troubles = "1", set[str | None]()
    with watching(cluster) as watch:

        def has_come_back() -> bool:
            nonlocal cursor
            _, cursor = watch(cursor)
            troubles.add(cluster.health()[VOLUME].trouble)
            return sum(b"watch=1" in it and b"resourceVersion=7" in it for it in asked) >= 3

        wait_until(has_come_back, progress=lambda: len(asked))
    # A quiet kind is silent too: it is no fault that would be waited for longer each time.
    assert troubles == {None}
    listener.close()
    for connection in held:
        connection.close()


# Calls ---------------------------------------------------------------------------------------------------


def test_a_binding_is_one_request_with_uid_and_version() -> None:
    with replaying("34") as recorded:
        adapter(recorded).bind_pod("shop/web-0", uid="u", version="9", node="n1")
    names = {"name": "web-0", "namespace": "shop", "uid": "u", "resourceVersion": "9"}
    assert recorded.requests[0].body["metadata"] == names
    assert [request.method for request in recorded.requests] == ["POST"]


def test_an_object_that_is_not_there_is_nothing_and_a_missing_kind_is_an_error() -> None:
    with replaying("19c", "19b") as recorded:
        cluster = adapter(recorded)
        assert cluster.get(VOLUME, "nothing") is None
        with pytest.raises(UnservedError):
            cluster.get(VOLUME, "nothing")


def test_a_replica_that_lags_is_asked_again() -> None:
    quick = dict(recordings()["7b"])
    quick["response"] = {**quick["response"], "headers": {"retry-after": "0"}}
    with replaying(quick, quick, "25") as recorded:
        cluster = adapter(recorded)
        assert cluster.get(VOLUME, "disk-1") is not None
    assert len(recorded.requests) == 3


def test_an_overloaded_server_is_left_alone_for_as_long_as_it_says() -> None:
    with replaying("53") as recorded:
        cluster = adapter(recorded)
        with pytest.raises(UnansweredError, match="Too many requests") as caught:
            cluster.patch(VOLUME, "pv", {}, version="1")
    assert caught.value.retry_after == 2


def test_an_unknown_token_is_read_again_once_and_then_told_with_its_remedy(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    with replaying("52", "25", "52") as recorded:
        cluster = adapter(recorded, token_file=str(file))
        file.write_text("new")
        assert cluster.get(VOLUME, "disk-1") is not None
        with pytest.raises(UnansweredError, match=f"not accept our credentials; .*renews the token in {file}"):
            cluster.get(VOLUME, "disk-1")
    assert [request.headers["authorization"] for request in recorded.requests[:2]] == ["Bearer new", "Bearer new"]
    assert len(recorded.requests) == 4


def test_a_token_that_nobody_can_renew_is_asked_about_once() -> None:
    with replaying("52") as recorded:
        cluster = adapter(recorded, token="old", context="prod")
        with pytest.raises(UnansweredError, match='put a new token into context "prod"'):
            cluster.get(VOLUME, "disk-1")
    assert len(recorded.requests) == 1


def test_who_a_cluster_is_and_what_we_may_do_there() -> None:
    wanted = (Permission("list", VOLUME), Permission("patch", VOLUME))
    with replaying("56", "56e", "55", "55b", "56d") as recorded:
        identity = adapter(recorded).describe(wanted)
    assert (identity.version, identity.reachable, identity.trouble) == ("1.37", True, None)
    assert identity.uid == recordings()["56e"]["response"]["body"]["metadata"]["uid"]
    assert identity.may == {wanted[0]: True, wanted[1]: False}
    assert identity.unserved == ()


def test_kinds_that_a_server_does_not_have_are_reported() -> None:
    wanted = (Permission("list", "CSIStorageCapacity"),)
    with replaying("56", "56e", "55", "19b") as recorded:
        assert adapter(recorded).describe(wanted).unserved == ("CSIStorageCapacity",)


def test_an_old_server_and_one_that_is_not_verified_are_warned_about() -> None:
    old = {"response": {"status": 200, "body": {"major": "1", "minor": "24+"}}}
    with replaying(old, "56e") as recorded:
        warnings = adapter(recorded, insecure=True, context="prod").describe().warnings
    assert any("1.24, older than 1.29" in warning for warning in warnings)
    assert any("insecure-skip-tls-verify" in warning for warning in warnings)


def test_clocks_that_are_apart_are_warned_about() -> None:
    late = {"response": {"status": 200, "headers": {"date": "Thu, 01 Jan 2026 00:00:00 GMT"}, "body": {}}}
    assert clock_skew("Thu, 01 Jan 2026 00:00:30 GMT", 1_767_225_600) == 30
    assert clock_skew("", 0) is None
    with replaying(late, "56e") as recorded:
        (warning,) = adapter(recorded).describe().warnings
    assert re.search(r"clock is \d+ s ahead of the server's; set both by NTP", warning)
