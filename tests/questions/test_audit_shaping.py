"""What the audit makes of events and rows, without any store: words, verdicts, percentiles, claims served."""

from typing import Any

import pytest

from volsched.log.events.catalogue import CATALOGUE, check_payload
from volsched.log.events.envelope import Event, canonical
from volsched.log.reads.decision_audit import Took
from volsched.questions.audit.answers import place_in, place_token, time_text
from volsched.questions.audit.decisions import first_failure, percentiles
from volsched.questions.explain.stored_decisions import verdict
from volsched.questions.history.event_text import patch_words, reason_of, words_of
from volsched.questions.history.volume_history import NEVER_BOUND, UNKNOWN_DATA, Tenure, data_state, tenures
from volsched.questions.refusals import TokenError


def event(type_: str, data: dict[str, Any], *, version: int = 1, stream: str = "volume/disk") -> Event:
    """The version is the position too."""
    return Event(version, stream, version, type_, 1, version, "test", None, None, canonical(data), b"")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"status": {"phase": "Bound"}}, "status.phase=Bound"),
        ({"spec": {"claimRef": {"namespace": "shop", "name": "data", "uid": "1"}}}, "spec.claimRef=shop/data"),
        ({"spec": {"claimRef": None}}, "spec.claimRef removed"),
        (
            {"metadata": {"annotations": {"a.io/b": "yes"}, "labels": {"x": "1"}}},
            "annotation a.io/b=yes, label x=1",
        ),
        ({"spec": {"accessModes": ["ReadWriteOnce"], "n": 3}}, 'spec.accessModes=["ReadWriteOnce"], spec.n=3'),
        ({"spec": {}}, "spec={}"),
        ({"message": "x" * 80}, f"message={'x' * 59}…"),
        ({str(n): n for n in range(8)}, "0=0, 1=1, 2=2, 3=3, 4=4, 5=5 and 2 more"),
        ({"metadata": {"labels": {"a": "b"}, "managedFields": [{"manager": "kubectl"}]}}, "label a=b"),
        ({"metadata": {"managedFields": [{"manager": "kubectl"}]}}, "owners of fields"),
    ],
)
def test_a_patch_in_a_few_words(patch: dict[str, Any], words: str) -> None:
    assert patch_words(patch) == words


LEAST: dict[str, dict[str, Any]] = {
    "Patch": {"patch": {"a": 1}},
    "Deletion": {},
    "Assumption": {"binding": "b", "patch": {"a": 1}, "rv": 1},
    "Freeing": {"binding": "b"},
    "PlanData": {"pod": "shop/db", "pod_uid": "u", "node": "n", "decided_at": 1, "legs": [{"claim": "shop/data"}]},
    "BindingMove": {"state": "waiting", "open": True},
    "LegMove": {"leg": 0, "state": "written", "open": True},
    "AttemptData": {
        "pod": "shop/db", "pod_uid": "u", "outcome": "planned", "detail": {}, "decided_at": 1, "decider": "a",
    },
    "Repeat": {"decided_at": 1},
    "AttemptFailure": {"message": "gone", "stage": "PreBind", "reason": "refused", "claim": "shop/data"},
    "Note": {"effect": "b/0/prebind", "done": "retried"},
    "TokenIssue": {"id": "t", "roles": ["viewer"]},
    "TokenRevocation": {"id": "t"},
    "LeaseFreeing": {"holder": "controller/a", "epoch": 2},
    "ClockCorrection": {"before": 2, "after": 1},
    "ClusterAttachment": {"uid": None, "version": None, "url": "https://c"},
    "CursorGap": {"kind": "Pod", "before": None, "after": 1, "since": None, "reason": "410"},
    "ClusterRestoration": {"kind": "Pod", "before": 2, "after": 1},
    "ClusterDrift": {"kind": "Pod", "missing": [], "left_over": [], "stale": []},
    "AuditQuestion": {"question": "diff"},
    "Redaction": {"first": 1, "last": 9, "what": ["actors", "reasons"], "seals": {"1": "00", "9": "00"}},
}  # fmt: skip
"""Of every model, data with what must be there."""


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_type_of_event_has_words(name: str) -> None:
    entry = CATALOGUE[name]
    data = LEAST[entry.payload]
    check_payload(name, entry.noun, data)
    assert words_of(event(name, data))
    newer = event(name, {"x": 1})._replace(schema=entry.schema + 1)
    assert words_of(newer) == name
    assert reason_of(newer) is None


def test_what_the_words_of_events_say() -> None:
    assert words_of(event("OfTheFuture", {"x": 1})) == "OfTheFuture"
    for name, words in {
        "AttemptFailed": "attempt failed in PreBind: shop/data",
        "BindingPlanned": "planned for pod shop/db on n: shop/data → a new volume",
        "EffectNoted": "effect b/0/prebind retried",
        "EventsRedacted": "redacted the actors and reasons of 2 events between 1 and 9",
    }.items():
        assert words_of(event(name, LEAST[CATALOGUE[name].payload])) == words


@pytest.mark.parametrize(
    ("type_", "data", "reason"),
    [
        ("VolumeChanged", {"patch": {}, "reason": "wiped"}, "wiped"),
        ("VolumeDeleted", {}, None),
        ("AttemptMade", {"detail": {"message": "0/2 nodes"}}, "0/2 nodes"),
        ("AttemptMade", {"detail": {"message": ""}}, None),
    ],
)
def test_why_an_event_happened(type_: str, data: dict[str, Any], reason: str | None) -> None:
    assert reason_of(event(type_, data)) == reason


PLANNED = {
    "pod": "shop/db",
    "node": "a",
    "score": 80,
    "runnersUp": [{"node": "b", "score": 70}, {"node": "c", "score": 60}, {"node": "d", "score": 50}],
    "reasons": [
        {"reason": "too small", "nodes": 9, "some": ["e", "f"]},
        {"reason": "tainted", "nodes": 1, "some": []},
    ],
}
NOWHERE = {**PLANNED, "node": None, "score": None, "runnersUp": [], "reasons": [PLANNED["reasons"][1]]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("item", "node", "told"),
    [
        (PLANNED, "a", "a was chosen with score 80"),
        (PLANNED, "c", "c would have fitted, with score 60 against 80 of a"),
        (PLANNED, "f", "f was refused: too small"),
        (PLANNED, "z", "9 refused: too small; 1 refused: tainted; or had a score below 50; decide it again"),
        (NOWHERE, "z", "refused like all others: tainted"),
    ],
)
def test_why_not_this_node(item: dict[str, Any], node: str, told: str) -> None:
    assert told in verdict(item, node)


def test_percentiles_are_of_the_nearest_rank_and_all_come_last() -> None:
    times = [Took("fast", "a", n * 1_000_000) for n in range(1, 101)] + [Took(None, None, 500_000)]
    none, fast, every = percentiles(times)
    assert (none["class"], none["zone"], none["p99"]) == ("-", "-", 0.5)
    assert (fast["p50"], fast["p90"], fast["p99"], fast["max"]) == (50, 90, 99, 100)
    assert (every["class"], every["count"], every["max"]) == ("all", 101, 100)
    ten, _ = percentiles([Took("fast", "a", n * 1_000_000) for n in range(1, 11)])
    assert (ten["p50"], ten["p90"], ten["p99"]) == (5, 9, 10)
    assert percentiles([]) == []


def step(type_: str, state: str, version: int, reason: str | None = None) -> Event:
    data = {"state": state, "leg": 0, "open": True} | ({} if reason is None else {"reason": reason})
    return event(type_, data, version=version, stream="binding/b")


@pytest.mark.parametrize(
    ("story", "position"),
    [
        ([("LegMoved", "written"), ("LegMoved", "voided"), ("BindingMoved", "compensating")], 2),
        ([("LegMoved", "written"), ("BindingMoved", "compensating"), ("LegMoved", "released")], 2),
        ([("LegMoved", "bound"), ("BindingMoved", "committing"), ("BindingMoved", "committed")], None),
        ([], None),
    ],
)
def test_the_first_failing_step(story: list[tuple[str, str]], position: int | None) -> None:
    found = first_failure([step(type_, state, n) for n, (type_, state) in enumerate(story, start=1)])
    assert (None if found is None else found.position) == position


def ref(name: str, uid: str | None = None) -> dict[str, Any]:
    return {"spec": {"claimRef": {"namespace": "shop", "name": name} | ({} if uid is None else {"uid": uid})}}


def volume_events(*patches: dict[str, Any]) -> list[Event]:
    changes = [event("VolumeChanged", {"patch": it}, version=n) for n, it in enumerate(patches, start=2)]
    return [event("VolumeCreated", {"patch": {"metadata": {"name": "disk"}}}), *changes]


@pytest.mark.parametrize(
    ("patches", "served"),
    [
        ([ref("a", "1"), {"spec": {"claimRef": None}}], [("shop/a", "1", 2, 3)]),
        ([ref("a"), ref("a", "1")], [("shop/a", "1", 2, None)]),
        ([ref("a", "1"), ref("b", "2")], [("shop/a", "1", 2, 3), ("shop/b", "2", 3, None)]),
        ([ref("a", "1"), ref("a", "2")], [("shop/a", "1", 2, 3), ("shop/a", "2", 3, None)]),
        ([{"status": {"phase": "Available"}}], []),
    ],
    ids=["given back", "pre-bound by name", "given on", "the same name, another claim", "never given"],
)
def test_whom_a_volume_served(patches: list[dict[str, Any]], served: list[tuple[Any, ...]]) -> None:
    found = tenures(None, volume_events(*patches))
    ends = [
        (it.claim, it.uid, it.begun and it.begun.version, it.ended.version if it.ended else None) for it in found
    ]
    assert ends == served


def claim_events(*patches: dict[str, Any] | None) -> list[Event]:
    """None: it is deleted."""
    made = {"metadata": {"uid": "1"}, "spec": {}}
    found = [event("ClaimCreated", {"patch": made}, stream="claim/shop/a")]
    for n, patch in enumerate(patches, start=2):
        type_, data = ("ClaimDeleted", {}) if patch is None else ("ClaimChanged", {"patch": patch})
        found.append(event(type_, data, version=n, stream="claim/shop/a"))
    return found


BOUND = {"spec": {"volumeName": "disk"}, "status": {"dataState": "Clean"}}
DIRTY = {"status": {"dataState": "Dirty"}}


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (claim_events(BOUND), "clean"),
        (claim_events(BOUND, DIRTY, None), "dirty"),
        (claim_events({"spec": {"volumeName": "disk"}}), UNKNOWN_DATA),
        (claim_events({"spec": {"volumeName": "another"}, "status": {"dataState": "Dirty"}}), NEVER_BOUND),
        ([], UNKNOWN_DATA),
        (claim_events(BOUND, None, None, None, DIRTY), "clean"),
    ],
    ids=["clean", "dirty, and gone since", "it says nothing", "bound elsewhere", "unknown claim", "after the end"],
)
def test_in_what_state_a_volume_was_handed_on(claim: list[Event], told: str) -> None:
    given = event("VolumeChanged", {"patch": {}})
    tenure = Tenure("shop/a", "1", given, given._replace(position=5))
    assert data_state("disk", tenure, claim) == told


def test_where_a_page_ended_can_be_told_and_read() -> None:
    assert place_in(place_token(17, "a~b")) == (17, "a~b")
    assert place_in(None) is None
    for wrong in ("", "x", "17", "~a", "17~"):
        with pytest.raises(TokenError):
            place_in(wrong)


def test_times_are_exact() -> None:
    assert time_text(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    assert time_text(None) is None
