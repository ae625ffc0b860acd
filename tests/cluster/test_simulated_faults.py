"""Each fault of the simulated cluster really happens, says the truth about itself, and is repeated by its seed."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.cluster.conftest import TIME
from tests.support.port_manifests import claim, node, pod
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.port import (
    KUBERNETES,
    CallRefusedError,
    ClusterError,
    ExpiredError,
    Manifest,
    Refusal,
    UnansweredError,
    whole,
)
from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.kube.patches import merged

NODE = "Node"


def simulated(seed: int = 1, **faults: Any) -> SimulatedCluster:
    return SimulatedCluster(ForeignApi(now_text=lambda: TIME), Random(seed), ClusterFaults(**faults))


def labelled(manifest: Manifest | None, **labels: str) -> dict[str, Any]:
    return merged(manifest or {}, {"metadata": {"labels": labels}})


def told(cluster: SimulatedCluster, cursor: str = "0") -> tuple[list[tuple[str, str]], str]:
    watched = cluster.watch({NODE: cursor})
    return [(change.key, change.version) for change in watched.changes], watched.cursors[NODE]


def test_a_lost_response_hides_a_write_that_happened() -> None:
    cluster = simulated(lost=1)
    with pytest.raises(UnansweredError):
        cluster.create(NODE, node())
    assert cluster.api.get(NODE, "n1") is not None


def test_a_failed_call_changes_nothing() -> None:
    cluster = simulated(failed=1)
    with pytest.raises(UnansweredError):
        cluster.create(NODE, node())
    assert cluster.api.get(NODE, "n1") is None


def test_a_call_that_is_turned_away_changes_nothing_and_says_when_to_come_back() -> None:
    cluster = simulated()
    cluster.before = lambda _: Fate.LIMITED
    with pytest.raises(UnansweredError) as caught:
        cluster.create(NODE, node())
    assert caught.value.retry_after
    assert cluster.api.get(NODE, "n1") is None


def test_a_silent_kind_keeps_its_cursor_and_is_reported_later() -> None:
    cluster = simulated(silent=1)
    cluster.api.create(NODE, node())
    silent = cluster.watch({NODE: "0"})
    assert (silent.changes, silent.cursors) == ((), {NODE: "0"})
    cluster.faults = ClusterFaults()
    assert told(cluster, "0")[0] == [("n1", "1")]


def test_a_list_that_breaks_off_never_has_a_cursor() -> None:
    cluster = simulated(torn=1)
    cluster.api.create(NODE, node())
    pages = cluster.list(NODE)
    first = next(pages)
    assert (len(first.objects), first.cursor) == (1, None)
    with pytest.raises(UnansweredError):
        next(pages)


def test_reads_fail_too() -> None:
    cluster = simulated(failed=1)
    for read in (
        lambda: cluster.get(NODE, "n1"),
        lambda: whole(cluster.list(NODE)),
        lambda: cluster.watch({NODE: "0"}),
    ):
        with pytest.raises(UnansweredError):
            read()


def test_a_slow_call_is_carried_out_some_calls_later() -> None:
    cluster = simulated(slow=1, slow_for=2)
    with pytest.raises(UnansweredError):
        cluster.create(NODE, node())
    cluster.faults = ClusterFaults()
    assert [cluster.get(NODE, "n1") is None for _ in range(4)] == [True, True, False, False]


def test_a_slow_call_waits_for_the_test_on_request() -> None:
    cluster = simulated(slow=1, slow_for=None)
    with pytest.raises(UnansweredError):
        cluster.create(NODE, node())
    cluster.faults = ClusterFaults()
    assert [cluster.get(NODE, "n1") for _ in range(10)] == [None] * 10
    assert cluster.land() == 1
    assert cluster.get(NODE, "n1") is not None
    assert cluster.land() == 0


def test_a_slow_call_is_judged_by_what_it_finds_when_it_lands() -> None:
    cluster = simulated(slow_for=None)
    made = cluster.create(NODE, node())
    cluster.faults = replace(cluster.faults, slow=1)
    with pytest.raises(UnansweredError):
        cluster.update(NODE, labelled(made, by="zombie"))
    taken = cluster.api.update(NODE, labelled(made, by="stranger"))
    cluster.land()
    assert cluster.api.get(NODE, "n1") == taken


def test_a_spurious_conflict_changes_nothing_and_spares_reads() -> None:
    cluster = simulated(conflict=1)
    made = cluster.api.create(NODE, node())
    with pytest.raises(CallRefusedError) as caught:
        cluster.update(NODE, labelled(made, a="b"))
    assert caught.value.refusal is Refusal.CONFLICT
    assert cluster.get(NODE, "n1") == made


def test_a_late_watch_shows_a_change_as_many_watches_later_as_it_lags() -> None:
    cluster = simulated(lag=2)
    cluster.create(NODE, node())
    seen = [told(cluster)[0] for _ in range(4)]
    assert seen == [[], [], [("n1", "1")], [("n1", "1")]]


def test_a_late_watch_is_in_order_and_comes_to_the_end() -> None:
    cluster, cursor, seen = simulated(lag=3), "0", []
    for number in range(6):
        cluster.create(NODE, node(f"n{number}"))
        changes, cursor = told(cluster, cursor)
        seen += changes
    assert seen == [(f"n{number}", str(number + 1)) for number in range(3)]
    for _ in range(3):
        changes, cursor = told(cluster, cursor)
        seen += changes
    assert seen == [(f"n{number}", str(number + 1)) for number in range(6)]


def test_a_repeating_watch_shows_what_it_has_shown_before() -> None:
    cluster = simulated(repeated=1)
    for number in range(20):
        cluster.create(NODE, node(f"n{number}"))
    _, cursor = told(cluster)
    again = [told(cluster, cursor) for _ in range(5)]
    assert any(changes for changes, _ in again)
    assert {after for _, after in again} == {cursor}


def test_a_coalescing_watch_shows_the_last_change_of_each_object_only() -> None:
    cluster = simulated(coalesced=1)
    made = cluster.create(NODE, node("n1"))
    cluster.create(NODE, node("n2"))
    cluster.update(NODE, labelled(made, a="b"))
    assert told(cluster) == ([("n2", "2"), ("n1", "3")], "3")


def test_a_watch_expires_by_chance_and_when_the_history_is_gone() -> None:
    with pytest.raises(ExpiredError):
        simulated(expired=1).watch({NODE: "0"})
    cluster = simulated()
    cluster.create(NODE, node())
    cluster.api.forget_history()
    with pytest.raises(ExpiredError):
        cluster.watch({NODE: "0"})
    assert told(cluster, whole(cluster.list(NODE)).cursor) == ([], "1")


def test_somebody_else_can_write_between_a_call_and_its_effect() -> None:
    cluster = simulated()
    made = cluster.create(NODE, node())

    def take_it(call: Call) -> None:
        if call == Call("update", NODE, "n1"):
            cluster.api.update(NODE, labelled(cluster.api.get(NODE, "n1"), by="stranger"))

    cluster.before = take_it
    with pytest.raises(CallRefusedError) as caught:
        cluster.update(NODE, labelled(made, by="us"))
    assert caught.value.refusal is Refusal.CONFLICT
    assert (cluster.get(NODE, "n1") or {})["metadata"]["labels"]["by"] == "stranger"


def test_somebody_else_can_write_between_an_effect_and_its_answer() -> None:
    cluster = simulated()

    def change_it(call: Call) -> None:
        if call.writes:
            cluster.api.update(NODE, labelled(cluster.api.get(NODE, "n1"), by="stranger"))

    cluster.after = change_it
    answered = cluster.create(NODE, node())
    assert cluster.api.get(NODE, "n1") != answered


def test_a_test_can_say_what_becomes_of_one_call() -> None:
    cluster = simulated()
    cluster.before = lambda call: Fate.LOST if call.verb == "create" and call.key == "n2" else None
    cluster.create(NODE, node("n1"))
    with pytest.raises(UnansweredError):
        cluster.create(NODE, node("n2"))
    assert len(whole(cluster.list(NODE)).objects) == 2


def test_a_cluster_like_kubernetes_refuses_what_it_cannot_do() -> None:
    api = ForeignApi(now_text=lambda: TIME, capabilities=KUBERNETES)
    api.create("PersistentVolumeClaim", claim())
    marks = {"metadata": {"annotations": {"pv.kubernetes.io/rollback": "x"}}}
    held = api.get("PersistentVolumeClaim", "db/data") or {}
    bound = api.update("PersistentVolumeClaim", merged(held, {"spec": {"volumeName": "pv"}, **marks}))
    let_go = merged(bound, {"spec": {"volumeName": None}})
    made = api.create("Pod", pod())["metadata"]
    uid = made["uid"]
    api.bind_pod("db/app", uid=uid, version=made["resourceVersion"], node="n1")
    refusals: list[Callable[[], object]] = [
        lambda: api.update("PersistentVolumeClaim", let_go),
        lambda: api.unassign_pod("db/app", uid=uid, reason="full"),
    ]
    for call in refusals:
        with pytest.raises(CallRefusedError) as caught:
            call()
        assert caught.value.refusal is Refusal.INVALID
    marked = api.update("PersistentVolumeClaim", merged(bound, {"status": {"dataState": "Clean"}}), status=True)
    assert "dataState" not in marked["status"]


def story(seed: int) -> list[str]:
    """What a client of a bad line lives through: every answer, refusal and silence, and the end."""
    cluster = simulated(
        seed, lost=0.1, failed=0.1, slow=0.1, conflict=0.1, lag=1, repeated=0.3, coalesced=0.3, expired=0.05
    )
    lived, cursor = [], "0"
    for number in range(200):
        name = f"n{number % 5}"
        try:
            match number % 4:
                case 0:
                    lived.append(str(cluster.create(NODE, node(name))["metadata"]))
                case 1:
                    lived.append(str(cluster.update(NODE, labelled(cluster.get(NODE, name), at=str(number)))))
                case 2:
                    cluster.delete(NODE, name)
                case _:
                    watched = cluster.watch({NODE: cursor})
                    cursor = watched.cursors[NODE]
                    lived.append(str(watched))
        except ClusterError as error:
            lived.append(f"{type(error).__name__}: {error}")
            cursor = cluster.api.head if isinstance(error, ExpiredError) else cursor
    return [*lived, str(whole(cluster.api.list(NODE)))]


def test_a_seed_tells_the_same_story_every_time_and_another_seed_another() -> None:
    assert story(1) == story(1)
    assert story(1) != story(2)
    assert {"UnansweredError", "CallRefusedError", "ExpiredError"} <= {line.partition(":")[0] for line in story(1)}
