"""Every answer that a real server gave is understood as what it was."""

import pytest

from tests.support.recorded_server import raw_body, recordings
from volsched.cluster.kubernetes.requests import ApiRequest
from volsched.cluster.kubernetes.responses import (
    LaggingError,
    NotAuthenticatedError,
    StreamedListRefusedError,
    UnservedError,
    error_in_stream,
    error_of,
)
from volsched.cluster.port import CallRefusedError, ClusterError, ExpiredError, Refusal, UnansweredError

CONFLICT, NOT_FOUND, EXISTS, INVALID, FORBIDDEN = (
    Refusal.CONFLICT,
    Refusal.NOT_FOUND,
    Refusal.EXISTS,
    Refusal.INVALID,
    Refusal.FORBIDDEN,
)
REFUSED = {
    **dict.fromkeys(("22", "22b", "22d", "22e", "27", "30b", "35", "36", "36b", "37", "37b", "37c"), CONFLICT),
    **dict.fromkeys(("38", "39", "43", "43b", "43c", "48c", "50d", "54", "54b", "57b"), CONFLICT),
    **dict.fromkeys(("19", "19b", "19c", "19d", "27d", "37d", "54d"), NOT_FOUND),
    **dict.fromkeys(("50b",), EXISTS),
    **dict.fromkeys(
        ("14b", "16", "17c", "27b", "27c", "29", "30", "32", "32b", "44", "45b", "46", "46c"), INVALID
    ),
    **dict.fromkeys(("48", "48e", "49b", "49d", "49e"), INVALID),
    **dict.fromkeys(("51", "51b", "51c", "51d", "51f", "51g", "52b"), FORBIDDEN),
}
OTHERS: dict[str, type[ClusterError]] = {
    **dict.fromkeys(("5", "12", "12e"), ExpiredError),
    **dict.fromkeys(("7", "7b"), LaggingError),
    "14": StreamedListRefusedError,
    **dict.fromkeys(("40", "40b", "53", "53b", "53c", "53d"), UnansweredError),
    "52": NotAuthenticatedError,
}


def answered(id_: str) -> ClusterError | None:
    exchange = recordings()[id_]
    asked, response = exchange["request"], exchange["response"]
    request = ApiRequest(
        method=asked["method"],
        path=asked["path"],
        query={name: str(value) for name, value in (asked.get("query") or {}).items()},
        content_type=(asked.get("headers") or {}).get("Content-Type", ""),
        what="play it",
        kind="PersistentVolume",
    )
    return error_of(request, response["status"], response.get("headers", {}), raw_body(exchange))


@pytest.mark.parametrize("id_", REFUSED)
def test_what_was_not_written_is_refused_for_its_reason(id_: str) -> None:
    error = answered(id_)
    assert isinstance(error, CallRefusedError)
    assert error.refusal is REFUSED[id_]


@pytest.mark.parametrize("id_", OTHERS)
def test_what_is_no_refusal_says_what_it_is(id_: str) -> None:
    assert type(answered(id_)) is OTHERS[id_]


def test_every_recorded_answer_is_accounted_for() -> None:
    failed = {id_ for id_, it in recordings().items() if it["response"].get("status", 200) >= 300}
    assert failed == REFUSED.keys() | OTHERS.keys()
    done = [id_ for id_, it in recordings().items() if 200 <= it["response"].get("status", 0) < 300]
    assert [answered(id_) for id_ in done] == [None] * len(done)


@pytest.mark.parametrize(("id_", "seconds"), [("7", 1), ("53", 2), ("53c", 10), ("40", None)])
def test_a_server_says_for_how_long_it_wants_to_be_left_alone(id_: str, seconds: float | None) -> None:
    error = answered(id_)
    assert isinstance(error, UnansweredError)
    assert error.retry_after == seconds


@pytest.mark.parametrize("id_", ["19", "19b"])
def test_a_kind_that_is_not_served_differs_from_an_object_that_does_not_exist(id_: str) -> None:
    assert isinstance(answered(id_), UnservedError)
    assert not isinstance(answered("19c"), UnservedError)


@pytest.mark.parametrize("id_", ["11", "11b", "11c", "11d", "12b"])
def test_an_expired_cursor_is_reported_inside_a_200(id_: str) -> None:
    (line,) = recordings()[id_]["response"]["lines"]
    request = ApiRequest(method="GET", path="/", what="watch Node", kind="Node")
    error = error_in_stream(request, line["event"]["object"])
    assert isinstance(error, ExpiredError)
    assert error.kind == "Node"
