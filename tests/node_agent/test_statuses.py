"""What is written of a pod on its way, each patch laid over what the one before left."""

from typing import Any

from volsched.kube.patches import merged
from volsched.node_agent.rules.lifecycle import (
    admitted,
    admitted_by,
    finished,
    has_started,
    is_shut_down,
    shut_down,
    started,
    started_at,
)

T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"
PENDING: dict[str, Any] = {
    "metadata": {"name": "app"},
    "spec": {"containers": [{"name": "main", "image": "app"}, {"name": "side", "image": "log"}]},
    "status": {"phase": "Pending"},
}


def conditions(pod: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {
        it["type"]: (it["status"], it["lastTransitionTime"], it.get("reason", ""))
        for it in pod["status"]["conditions"]
    }


def taken(pod: dict[str, Any] = PENDING, uid: str = "n-1", now: str = T0) -> dict[str, Any]:
    return merged(pod, admitted(pod, node_uid=uid, now=now))


def begun() -> dict[str, Any]:
    return merged(taken(), started(taken(), now=T1))


def test_an_admitted_pod_waits_for_its_containers() -> None:
    pod = taken()
    assert admitted_by(PENDING) is None
    assert admitted_by(pod) == "n-1"
    assert (pod["status"]["phase"], pod["status"]["startTime"]) == ("Pending", T0)
    assert conditions(pod)["PodScheduled"] == ("True", T0, "")
    assert conditions(pod)["Ready"] == ("False", T0, "ContainersNotReady")
    assert not has_started(pod)
    assert started_at(pod) is None


def test_a_running_pod_is_ready_since_it_started() -> None:
    pod = begun()
    assert pod["status"]["phase"] == "Running"
    assert conditions(pod)["Ready"] == ("True", T1, "")
    assert conditions(pod)["PodScheduled"] == ("True", T0, ""), "the time is that of the change"
    assert [it["name"] for it in pod["status"]["containerStatuses"]] == ["main", "side"]
    assert has_started(pod)
    assert started_at(pod) == T1


def test_a_pod_ends_with_its_exit_code() -> None:
    good, bad = (merged(begun(), finished(begun(), exit_code=code, now=T2)) for code in (0, 3))
    assert (good["status"]["phase"], bad["status"]["phase"]) == ("Succeeded", "Failed")
    ended = bad["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended == {"exitCode": 3, "reason": "Error", "startedAt": T1, "finishedAt": T2}
    assert conditions(good)["Ready"] == ("False", T2, "PodCompleted")
    assert has_started(good)
    assert started_at(good) is None


def test_a_pod_taken_over_while_it_runs_goes_on_running() -> None:
    pod = {**begun(), "status": {key: it for key, it in begun()["status"].items() if key != "admittedBy"}}
    over = taken(pod, now=T2)
    assert admitted_by(over) == "n-1"
    assert started_at(over) == T1
    assert taken(over, now=T2) == over


def test_a_pod_on_a_new_node_of_the_name_starts_over() -> None:
    pod = taken(begun(), uid="n-2", now=T2)
    assert admitted_by(pod) == "n-2"
    assert started_at(pod) is None
    assert has_started(pod), "it may never be unassigned"
    main = pod["status"]["containerStatuses"][0]
    assert main["restartCount"] == 1
    again = merged(pod, started(pod, now=T2))
    assert again["status"]["containerStatuses"][0]["restartCount"] == 1
    assert started_at(again) == T2


def test_a_pod_that_is_shut_down_has_ended() -> None:
    going = merged(begun(), {"metadata": {"deletionTimestamp": T1}})
    pod = merged(going, shut_down(going, exit_code=0, now=T2))
    assert not is_shut_down(going)
    assert is_shut_down(pod)
    assert pod["status"]["phase"] == "Succeeded"


def test_a_pod_that_never_ran_has_failed_when_it_is_shut_down() -> None:
    pod = merged(PENDING, shut_down(PENDING, exit_code=0, now=T2))
    assert pod["status"]["phase"] == "Failed"


def test_one_that_had_ended_keeps_its_phase() -> None:
    ended = merged(begun(), finished(begun(), exit_code=3, now=T1))
    assert merged(ended, shut_down(ended, exit_code=0, now=T2))["status"] == ended["status"]


def test_a_pod_without_containers_runs_too() -> None:
    pod = taken({"metadata": {}, "spec": {}, "status": {"phase": "Pending"}})
    assert started_at(merged(pod, started(pod, now=T1))) == T0


def test_what_stands_in_a_status_and_is_no_container_is_passed_over() -> None:
    odd = {"status": {"phase": "Running", "containerStatuses": "none", "conditions": ["x"], "admittedBy": 3}}
    assert started_at(odd) == ""
    assert admitted_by(odd) is None
    assert conditions(merged(odd, finished(odd, exit_code=0, now=T0)))["Ready"][0] == "False"
