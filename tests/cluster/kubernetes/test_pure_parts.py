"""Lines from chunks, waits, buckets, proofs: the parts without a connection."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volsched.cluster.kubernetes import requests
from volsched.cluster.kubernetes.backoff import HEALTHY_SECONDS, LONGEST_SECONDS, FailureStreak, TokenBucket, delay
from volsched.cluster.kubernetes.metadata_proof import Drift, ObjectVersion, compare
from volsched.cluster.kubernetes.transport import is_direct
from volsched.cluster.kubernetes.watch_lines import lines, unchanged_key, watch_line
from volsched.cluster.port import Permission, UnansweredError

EVENTS = [json.dumps({"type": "ADDED", "object": {"metadata": {"name": f"é{n}"}}}).encode() for n in range(5)]


@given(st.lists(st.integers(0, 400), max_size=12))
def test_lines_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    body = b"".join(event + b"\n" for event in EVENTS)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[start:end] for start, end in pairwise(places)]
    assert list(lines(chunks)) == EVENTS


def test_an_event_that_was_cut_off_is_not_told() -> None:
    assert list(lines([EVENTS[0] + b"\n" + EVENTS[1][:-3]])) == [EVENTS[0]]


HEAD = b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"db-0","generateName":"db-",'
LINE = HEAD + b'"namespace":"shop","uid":"u1","resourceVersion":"7","labels":{"resourceVersion":"8"}}}}'


def test_an_object_at_the_version_that_is_known_is_reported_by_its_key() -> None:
    assert unchanged_key(LINE, {"shop/db-0": ("u1", "7")}) == "shop/db-0"
    node = LINE.replace(b'"namespace":"shop",', b"").replace(b'"generateName":"db-",', b"")
    assert unchanged_key(node, {"db-0": ("u1", "7")}) == "db-0"


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (LINE, {}),
        (LINE, {"shop/db-0": ("u1", "8")}),
        (LINE, {"shop/db-0": ("u2", "7")}),
        (LINE, {"db-0": ("u1", "7")}),
        (LINE.replace(b"ADDED", b"MODIFIED"), {"shop/db-0": ("u1", "7")}),
        # Another order of fields, or a name with an escape: the line is decoded instead.
        (LINE.replace(b'"uid":"u1",', b"") + b'"uid":"u1"', {"shop/db-0": ("u1", "7")}),
        (LINE.replace(b"db-0", b"db\\u0030"), {"shop/db\\u0030": ("u1", "7")}),
    ],
)
def test_an_object_that_may_differ_is_decoded(line: bytes, known: dict[str, tuple[str, str]]) -> None:
    assert unchanged_key(line, known) is None


@pytest.mark.parametrize("line", [b"<html>", b"[]", b'{"type":"ADDED"}', b"7"])
def test_what_is_no_event_is_no_event(line: bytes) -> None:
    with pytest.raises(UnansweredError):
        watch_line(line)


def test_waits_double_up_to_a_bound_and_chance_adds_up_to_as_much_again() -> None:
    assert [delay(n, 0) for n in range(8)] == [0, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, LONGEST_SECONDS]
    assert delay(1, 0.5) == pytest.approx(1.2)
    assert delay(10_000, 1) == 2 * LONGEST_SECONDS
    assert delay(1, 0, retry_after=10) == 10


def test_a_failure_after_a_healthy_time_is_a_first_one() -> None:
    streak = FailureStreak()
    assert [streak.failed(now) for now in (1000, 1001, 1002)] == [1, 2, 3]
    assert streak.failed(1002 + HEALTHY_SECONDS) == 1


def test_a_bucket_lets_a_burst_through_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(per_second=5, burst=3)
    assert [bucket.take(0.0) for _ in range(5)] == [0, 0, 0, pytest.approx(0.2), pytest.approx(0.4)]
    assert bucket.take(100.0) == 0


def test_a_bucket_may_begin_with_more_than_it_ever_gets_again() -> None:
    bucket = TokenBucket(per_second=5, burst=2, at_start=4)
    assert [bucket.take(0.1 * number) for number in range(4)] == [0, 0, 0, 0]
    assert bucket.take(0.3) > 0
    assert [bucket.take(100.0) for _ in range(3)] == [0, 0, pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("host", "listed", "direct"),
    [
        ("10.0.0.1", "10.0.0.0/8", True),
        ("10.0.0.1", "192.168.0.0/16,localhost", False),
        ("api.corp.example", ".corp.example", True),
        ("api.corp.example", "corp.example", True),
        ("evilcorp.example", "corp.example", False),
        ("anything", "*", True),
        ("anything", "", False),
    ],
)
def test_who_is_reached_without_the_proxy(host: str, listed: str, direct: bool) -> None:
    assert is_direct(host, listed) is direct


def test_paths_and_bodies_are_those_of_kubernetes() -> None:
    assert requests.get("Node", "n1").path == "/api/v1/nodes/n1"
    assert requests.get("StatefulSet", "db/web").path == "/apis/apps/v1/namespaces/db/statefulsets/web"
    assert requests.list_page("CSIStorageCapacity").path == "/apis/storage.k8s.io/v1/csistoragecapacities"
    patch = requests.patch(
        "PersistentVolume", "pv", {"metadata": {"labels": {"a": None}}}, version="7", status=False
    )
    assert patch.body == {"metadata": {"labels": {"a": None}, "resourceVersion": "7"}}
    bound = requests.bind("db/app", uid="u", version="9", node="n1", annotations={"a": "b"})
    assert bound.path == "/api/v1/namespaces/db/pods/app/binding"
    assert bound.body is not None
    assert bound.body["metadata"]["resourceVersion"] == "9"
    review = requests.access_review(Permission("create", "Pod", "binding"))
    assert review.body is not None
    assert review.body["spec"]["resourceAttributes"] == {
        "verb": "create",
        "group": "",
        "resource": "pods",
        "subresource": "binding",
    }
    assert requests.get("Node", "a b%").path.endswith("/a%20b%25")


def test_a_proof_names_what_differs_and_excuses_what_is_newer_than_the_list() -> None:
    listed = [ObjectVersion(key, f"uid-{key}", "5") for key in ("same", "new", "other", "changed", "undone")]
    known = {
        "same": ("uid-same", "5"),
        "other": ("uid-before", "4"),
        "changed": ("uid-changed", "4"),
        "undone": ("uid-undone", "8"),
        "gone": ("uid-gone", "3"),
        "later": ("uid-later", "11"),
    }
    drift = compare(listed, known, cursor="10")
    assert drift == Drift(("new",), ("gone", "other"), ("changed", "undone"))
    assert drift.also_in(Drift(left_over=("gone",))) == Drift(left_over=("gone",))
    assert not drift.also_in(Drift())
