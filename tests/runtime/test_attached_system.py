"""Own mode over HTTP: pods of a strict API server are placed, through lost answers and restarts."""

from collections.abc import Callable

import pytest

from tests.support.attached_cluster import Attached, ours
from tests.support.clusters import claim, node, volume
from tests.support.followed_tally import followed
from volsched.kube.meta import BIND_COMPLETED, SELECTED_NODE
from volsched.lab.storage_players import volume_path

MERGE = {"content-type": "application/merge-patch+json"}


def test_a_pod_takes_one_call_for_each_claim_and_two_for_itself(own: Attached) -> None:
    own.running.create(ours("db", "data", "logs", "scratch"))
    own.until(lambda: SELECTED_NODE in own.marks(own.claim("scratch")))
    assert own.pod("db")["status"]["nominatedNodeName"] == "n1"
    assert own.controller.bind() == 2
    own.controller.order("scratch")
    own.provisioner.provision("scratch")
    assert own.controller.bind() == 1
    own.until(lambda: own.node_of("db") == "n1" and own.has_settled())
    assert own.sent == [
        'patch Pod "default/db"',
        'patch PersistentVolume "small-1"',
        'patch PersistentVolume "large-1"',
        'patch PersistentVolumeClaim "default/scratch"',
        'bind Pod "default/db"',
    ]
    assert "nominatedNodeName" not in own.pod("db")["status"]


def test_a_pod_is_bound_in_one_call_though_its_nomination_was_not_seen_yet(
    own: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claims' watch may be ahead of the pods': the answer to our own write says which version the pod has."""
    own.running.create(ours("db", "data"))
    own.until(lambda: own.pod("db").get("status", {}).get("nominatedNodeName"))
    monkeypatch.setattr(own.cluster.streams["Pod"], "take", lambda cursor, _: ([], cursor))
    own.until(lambda: own.given_to("small-1"))
    own.controller.bind()
    own.until(lambda: own.node_of("db") == "n1")
    assert own.sent == ['patch Pod "default/db"', 'patch PersistentVolume "small-1"', 'bind Pod "default/db"']


def test_a_pod_that_fits_nowhere_gets_the_message_of_kube_scheduler(own: Attached) -> None:
    own.running.create(claim("huge", "50Gi"), ours("db", "huge"))
    own.until(lambda: own.pod("db").get("status", {}).get("conditions") and own.has_settled())
    (condition,) = [it for it in own.pod("db")["status"]["conditions"] if it["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    events = own.running.http.get("/apis/events.k8s.io/v1/namespaces/default/events").json()["items"]
    assert [(it["reason"], it["regarding"]["name"]) for it in events] == [("FailedScheduling", "db")]


@pytest.mark.parametrize("fault", ["lost-answer", "late-write"])
@pytest.mark.parametrize("resource", ["persistentvolumes", "pods"])
def test_a_write_that_is_not_answered_happens_once(own: Attached, fault: str, resource: str) -> None:
    own.running.create(ours("db", "data"))
    own.until(lambda: own.pod("db").get("status", {}).get("nominatedNodeName"))
    if resource == "pods":
        own.until(lambda: own.given_to("small-1"))
        own.controller.bind()
    own.fault(fault, resource, seconds=0.1)

    own.until(lambda: own.node_of("db") == "n1" and own.has_settled(), seconds=1, binds=True)
    assert own.given_to("small-1") == "data"
    assert own.legs() == [("data", "bound", "")]


def test_a_second_volume_stolen_between_plan_and_write_frees_the_first_and_the_pod_runs_elsewhere(
    own: Attached,
) -> None:
    """The reference strands such a pod: its first claim stays bound to a node that has no second volume."""
    own.create(node("n2"), volume("small-2", "2Gi", "n2"), volume("large-2", "10Gi", "n2"))
    own.running.create(claim("theirs", "5Gi"), ours("db", "data", "logs"))
    theirs = {"name": "theirs", "namespace": "default", "uid": own.claim("theirs")["metadata"]["uid"]}
    own.until(lambda: own.pod("db").get("status", {}).get("nominatedNodeName"))
    stolen = f"large-{own.pod('db')['status']['nominatedNodeName'][-1]}"
    own.running.http.patch(volume_path(stolen), json={"spec": {"claimRef": theirs}}, headers=MERGE)
    other = {"large-1": "n2", "large-2": "n1"}[stolen]

    def bound() -> bool:
        if own.pod("db").get("status", {}).get("nominatedNodeName") == other:
            own.controller.bind()
        return own.node_of("db") == other

    own.until(bound, seconds=1)
    assert own.given_to(stolen) == "theirs"
    assert own.given_to(f"small-{stolen[-1]}") is None
    volumes = {own.claim(it)["spec"]["volumeName"] for it in ("data", "logs")}
    assert volumes == {f"small-{other[-1]}", f"large-{other[-1]}"}
    assert followed(own.database).conflicts == {"local": 1}


def test_nothing_is_written_before_the_cluster_was_listed(own: Attached) -> None:
    own.running.create(ours("db", "data"))
    own.fault("too-many-requests", "pods", times=2, seconds=1)
    own.system.step(own.now())
    assert own.sent == []
    own.until(lambda: own.given_to("small-1") == "data")


@pytest.mark.parametrize("point", ["nominated", "prebound", "bound"])
def test_a_process_that_dies_anywhere_is_succeeded_by_one_that_goes_on(own: Attached, point: str) -> None:
    own.running.create(ours("db", "data", "logs"))
    moments: dict[str, Callable[[], object]] = {
        "nominated": lambda: own.pod("db").get("status", {}).get("nominatedNodeName"),
        "prebound": lambda: own.given_to("small-1"),
        "bound": lambda: own.given_to("large-1") and own.controller.bind(),
    }
    own.until(moments[point])
    own.restart()

    own.until(lambda: own.node_of("db") == "n1" and own.has_settled(), seconds=1, binds=True)
    assert [state for _, state, _ in own.legs()] == ["bound", "bound"]
    assert BIND_COMPLETED in own.marks(own.claim("data"))
