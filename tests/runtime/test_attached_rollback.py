"""What own mode undoes over HTTP, row by row of the safe table, and what it leaves as it is."""

from itertools import count
from typing import Any

import pytest

from tests.support.attached_cluster import Attached, ours
from tests.support.clusters import claim, node, pod, volume
from volsched.binding.rules.safe_release import REASONS, SafeRow
from volsched.kube.meta import BINDING_STAMP, FENCE, SELECTED_NODE
from volsched.lab.storage_players import claim_path, volume_path
from volsched.questions.claims.data_state import NEVER_USED
from volsched.questions.claims.handlers import retained
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import PageParameters

MERGE = {"content-type": "application/merge-patch+json"}
NEVER = 600
"""Seconds: a write that is under way all the time."""


def delete_pod(own: Attached) -> None:
    own.running.http.delete("/api/v1/namespaces/default/pods/db?gracePeriodSeconds=0")


def prebound(own: Attached, *claims: str) -> None:
    own.running.create(ours("db", *claims))
    own.until(lambda: all(state == "written" for _, state, _ in own.legs()) and own.legs())


def settled(own: Attached) -> list[tuple[str, str, str]]:
    own.until(own.has_settled, seconds=1)
    return own.legs()


def test_s0_what_was_planned_and_not_sent_takes_no_call_to_undo(own: Attached) -> None:
    """A provisioner is asked after all volumes are written, and one of those is somebody else's by now."""
    own.running.create(claim("theirs", "1Gi"), ours("db", "data", "scratch"))
    # Nomination and write may be made in one step: between them we may not act.
    own.may_act = lambda: not own.pod("db").get("status", {}).get("nominatedNodeName")
    own.until(lambda: not own.may_act())
    own.may_act = lambda: True
    theirs = {"name": "theirs", "namespace": "default", "uid": own.claim("theirs")["metadata"]["uid"]}
    own.running.http.patch(volume_path("small-1"), json={"spec": {"claimRef": theirs}}, headers=MERGE)
    delete_pod(own)
    assert [state for _, state, _ in settled(own)] == ["voided", "voided"]
    assert not [it for it in own.sent if it == 'patch PersistentVolumeClaim "default/scratch"']
    assert own.given_to("small-1") == "theirs"


def test_s1_a_write_that_may_still_land_is_fenced_before_it_is_given_up(own: Attached) -> None:
    planned = own.volume("small-1")["metadata"]["resourceVersion"]
    # Before the pod comes: nomination and write may be made in one step.
    own.fault("late-write", "persistentvolumes", seconds=NEVER)
    own.running.create(ours("db", "data"))
    own.until(lambda: 'patch PersistentVolume "small-1"' in own.sent)
    delete_pod(own)
    assert [state for _, state, _ in settled(own)] == ["voided"]
    assert own.marks(own.volume("small-1")).keys() == {FENCE}
    # What was under way comes now, with the version of the plan.
    late = {"metadata": {"resourceVersion": planned}, "spec": {"claimRef": {"name": "data"}}}
    assert own.running.http.patch(volume_path("small-1"), json=late, headers=MERGE).status_code == 409
    assert own.given_to("small-1") is None


def test_s2_a_volume_that_no_controller_has_touched_is_free_again(own: Attached) -> None:
    prebound(own, "data")
    own.controller.refresh()
    delete_pod(own)
    assert [state for _, state, _ in settled(own)] == ["released"]
    assert own.given_to("small-1") is None
    assert BINDING_STAMP not in own.marks(own.volume("small-1"))
    # The controller acts on what it saw before: its first write is refused, and it never reaches the claim.
    assert own.controller.set_phase("small-1") == 409


@pytest.mark.parametrize("fault", ["too-many-requests", "late-write"])
def test_s2_a_volume_is_freed_after_minutes_in_which_the_server_took_no_write(own: Attached, fault: str) -> None:
    """Of eight attempts the last is a minute after the first: an overloaded server may take longer."""
    prebound(own, "data")
    delete_pod(own)
    own.fault(fault, "persistentvolumes", times=10, seconds=NEVER if fault == "late-write" else 1)

    own.until(own.has_settled, seconds=5)
    assert [state for _, state, _ in own.legs()] == ["released"]
    assert own.given_to("small-1") is None


def reserve(own: Attached) -> None:
    """A user keeps a volume for a claim by its name, and the controller has not acted on that yet."""
    kept = {"spec": {"claimRef": {"namespace": "default", "name": "data"}}}
    assert own.running.http.patch(volume_path("small-1"), json=kept, headers=MERGE).status_code == 200
    own.controller.refresh()


def test_s2_of_a_volume_that_a_user_reserved_only_the_uid_is_taken_back(own: Attached) -> None:
    reserve(own)
    prebound(own, "data")
    assert own.volume("small-1")["spec"]["claimRef"]["uid"] == own.claim("data")["metadata"]["uid"]
    # The controller begins with what it saw before us: its first write is refused, and so is every later one.
    assert own.controller.set_claim("small-1", "data") == 409
    delete_pod(own)
    assert [state for _, state, _ in settled(own)] == ["released"]
    kept = own.volume("small-1")["spec"]["claimRef"]
    assert (kept["namespace"], kept["name"], "uid" in kept) == ("default", "data", False)
    assert BINDING_STAMP not in own.marks(own.volume("small-1"))
    assert own.controller.set_phase("small-1") == 409


def test_a_controller_whose_first_write_is_faster_than_ours_has_bound_the_claim_for_us(own: Attached) -> None:
    reserve(own)
    own.running.create(ours("db", "data"))
    own.until(lambda: own.pod("db").get("status", {}).get("nominatedNodeName"))
    assert own.controller.set_claim("small-1", "data") == 200

    own.until(lambda: own.node_of("db") == "n1" and own.has_settled(), seconds=1, binds=True)
    assert own.claim("data")["spec"]["volumeName"] == "small-1"


def test_s3_a_volume_that_the_controller_calls_bound_is_never_pulled_away(own: Attached) -> None:
    prebound(own, "data")
    own.controller.refresh()
    assert own.controller.set_phase("small-1") == 200
    delete_pod(own)
    assert settled(own) == [("data", "retained", REASONS[SafeRow.HALF_BOUND])]
    assert own.given_to("small-1") == "data"
    # A late controller completes it, and the claim is not lost.
    assert own.controller.write_claim("data", "small-1") == 200


def test_s3_a_controller_that_completes_in_time_makes_it_s5(own: Attached) -> None:
    prebound(own, "data")
    own.controller.refresh()
    own.controller.set_phase("small-1")
    delete_pod(own)
    own.until(lambda: [state for _, state, _ in own.legs()] == ["releasing"])
    own.controller.write_claim("data", "small-1")
    assert settled(own) == [("data", "retained", REASONS[SafeRow.BOUND])]


def test_s4_a_claim_that_names_its_volume_keeps_it(own: Attached) -> None:
    prebound(own, "data")
    own.controller.refresh()
    own.controller.set_phase("small-1")
    named = {"spec": {"volumeName": "small-1"}}
    assert own.running.http.patch(claim_path("data"), json=named, headers=MERGE).status_code == 200
    delete_pod(own)
    assert settled(own) == [("data", "retained", REASONS[SafeRow.NAMED])]
    assert own.given_to("small-1") == "data"


def test_s5_a_bound_claim_keeps_its_volume_and_gets_an_event_of_it(own: Attached) -> None:
    prebound(own, "data", "logs")
    own.controller.refresh()
    own.controller.set_phase("small-1")
    own.controller.write_claim("data", "small-1")
    delete_pod(own)
    assert settled(own) == [("data", "retained", REASONS[SafeRow.BOUND]), ("logs", "released", "")]
    assert (own.given_to("small-1"), own.given_to("large-1")) == ("data", None)
    events = own.running.http.get("/apis/events.k8s.io/v1/namespaces/default/events").json()["items"]
    assert ("VolumeRetained", "data") in [(it["reason"], it["regarding"]["name"]) for it in events]

    def list_retained() -> list[dict[str, Any]]:
        return list(retained(QuestionContext(store=own.database, now=own.now()), PageParameters()).items)

    # Nothing is proven of a claim that changed after pods were last heard of: kinds come in no common order.
    own.running.create(pod("unrelated"))
    words = count()

    def is_proven_unused() -> bool:
        said = {"metadata": {"annotations": {"word": str(next(words))}}}
        own.running.http.patch("/api/v1/namespaces/default/pods/unrelated", json=said, headers=MERGE)
        return [it["data"] for it in list_retained()] == [NEVER_USED]

    own.until(is_proven_unused)
    (listed,) = list_retained()
    assert (listed["claim"], listed["volume"]) == ("default/data", "small-1")
    assert listed["reason"] == REASONS[SafeRow.BOUND]
    assert listed["proposal"] == "keep it, or, if no pod needs it there: kubectl -n default delete pvc data"
    # A person accepts that, and the cluster's protection controller lets go of a claim that no pod uses.
    own.running.http.delete(claim_path("data"))
    unprotected = {"metadata": {"finalizers": None}}
    assert own.running.http.patch(claim_path("data"), json=unprotected, headers=MERGE).status_code == 200
    own.until(lambda: not list_retained())


def test_s6_a_volume_that_somebody_else_took_is_left_to_them(own: Attached) -> None:
    prebound(own, "data")
    own.running.create(claim("theirs", "1Gi"))
    theirs = {"name": "theirs", "namespace": "default", "uid": own.claim("theirs")["metadata"]["uid"]}
    own.running.http.patch(volume_path("small-1"), json={"spec": {"claimRef": theirs}}, headers=MERGE)

    # The next binding of the pod waits for a controller that nobody plays here.
    own.until(lambda: [state for _, state, _ in own.legs()][:1] == ["retained"], seconds=1)
    assert own.given_to("small-1") == "theirs"


def test_s7_a_volume_whose_claim_is_deleted_is_cleared_before_it_can_be_reclaimed(own: Attached) -> None:
    prebound(own, "data")
    delete_pod(own)
    own.running.http.delete(claim_path("data"))
    assert [state for _, state, _ in settled(own)] == ["released"]
    assert own.given_to("small-1") is None


def test_s7_a_volume_whose_claim_is_deleted_too_late_is_left_to_its_reclaim_policy(own: Attached) -> None:
    prebound(own, "data")
    own.controller.refresh()
    own.controller.set_phase("small-1")
    delete_pod(own)
    own.running.http.delete(claim_path("data"))
    assert settled(own) == [("data", "retained", REASONS[SafeRow.CLAIM_GONE_LATE])]
    assert own.given_to("small-1") == "data"


def test_d1_a_node_that_no_provisioner_has_seen_is_taken_back(own: Attached) -> None:
    prebound(own, "scratch")
    delete_pod(own)
    assert [state for _, state, _ in settled(own)] == ["released"]
    assert own.marks(own.claim("scratch")) == {}


def assert_the_next_pod_goes_to_the_volume(own: Attached) -> None:
    assert own.controller.bind() == 1
    own.create(node("n2"), ours("again", "scratch"))
    own.until(lambda: own.node_of("again") == "n1")


def test_d2_a_claim_that_a_provisioner_works_on_keeps_its_node(own: Attached) -> None:
    prebound(own, "scratch")
    own.controller.order("scratch")
    delete_pod(own)
    assert settled(own) == [("scratch", "retained", REASONS[SafeRow.PROVISIONING])]
    assert own.marks(own.claim("scratch"))[SELECTED_NODE] == "n1"
    # The volume comes late and goes to its claim, and the next pod goes where it is.
    own.provisioner.provision("scratch")
    assert_the_next_pod_goes_to_the_volume(own)


def test_d3_a_volume_that_a_provisioner_has_made_goes_to_its_claim_and_the_next_pod_to_it(own: Attached) -> None:
    """Its claim is not bound yet: the controller's cache is older than the volume."""
    prebound(own, "scratch")
    own.controller.order("scratch")
    made = own.provisioner.provision("scratch")
    delete_pod(own)
    assert settled(own) == [("scratch", "retained", REASONS[SafeRow.PROVISIONING])]
    assert own.given_to(made) == "scratch"
    assert own.marks(own.claim("scratch"))[SELECTED_NODE] == "n1"
    assert_the_next_pod_goes_to_the_volume(own)


def test_d2_a_provisioner_that_gives_the_node_back_frees_the_claim_for_another_plan(own: Attached) -> None:
    prebound(own, "scratch")
    own.controller.order("scratch")
    own.running.create(node("n2"))
    own.provisioner.give_back("scratch")
    own.until(lambda: own.marks(own.claim("scratch")).get(SELECTED_NODE))
    assert own.legs()[0][1] == "released"


def test_d2_a_node_that_is_gone_for_long_is_removed_from_the_claim_and_the_pod_is_planned_again(
    own: Attached,
) -> None:
    prebound(own, "scratch")
    own.controller.order("scratch")
    own.running.create(node("n2"))
    own.running.http.delete("/api/v1/nodes/n1")
    assert settled(own) == [("scratch", "retained", REASONS[SafeRow.PROVISIONING])]
    own.wait(14 * 60)
    for _ in range(10):
        own.system.step(own.now())
    assert own.marks(own.claim("scratch"))[SELECTED_NODE] == "n1"
    own.wait(60)
    own.until(lambda: own.marks(own.claim("scratch")).get(SELECTED_NODE) == "n2")
    events = own.running.http.get("/apis/events.k8s.io/v1/namespaces/default/events").json()["items"]
    assert ("SelectedNodeRemoved", "scratch") in [(it["reason"], it["regarding"]["name"]) for it in events]


def test_d2_a_volume_that_comes_later_than_our_patience_places_no_pod_where_it_is_not(own: Attached) -> None:
    """The provisioner had begun for the node that is gone, and does not look at the claim again."""
    prebound(own, "scratch")
    own.controller.order("scratch")
    own.provisioner.begin("scratch")
    own.running.create(node("n2"))
    own.running.http.delete("/api/v1/nodes/n1")
    settled(own)
    own.wait(15 * 60)
    own.until(lambda: own.marks(own.claim("scratch")).get(SELECTED_NODE) == "n2")
    made = own.provisioner.provision("scratch")
    assert own.controller.bind() == 1

    def is_told() -> bool:
        told = own.pod("db").get("status", {}).get("conditions") or [{}]
        return "didn't match PersistentVolume's node affinity" in told[0].get("message", "") and own.has_settled()

    own.until(is_told, seconds=1)
    assert (own.given_to(made), own.node_of("db")) == ("scratch", None)
    assert own.legs()[-1] == ("scratch", "retained", REASONS[SafeRow.BOUND])


def test_d2_a_volume_that_was_made_for_a_node_that_is_gone_is_left_to_its_claim(own: Attached) -> None:
    prebound(own, "scratch")
    own.controller.order("scratch")
    own.provisioner.provision("scratch")
    own.running.create(node("n2"))
    own.running.http.delete("/api/v1/nodes/n1")
    settled(own)
    own.wait(16 * 60)
    for _ in range(10):
        own.system.step(own.now())
    assert own.marks(own.claim("scratch"))[SELECTED_NODE] == "n1"


def test_p1_a_pod_that_somebody_else_has_placed_is_theirs(own: Attached) -> None:
    own.create(node("n2"))
    prebound(own, "data")
    own.controller.bind()
    own.fault("late-write", "pods", seconds=NEVER)
    own.until(lambda: 'bind Pod "default/db"' in own.sent)
    body = {"metadata": {"name": "db"}, "target": {"kind": "Node", "name": "n2"}}
    path = "/api/v1/namespaces/default/pods/db/binding"
    assert own.running.http.post(path, json=body).status_code == 201
    assert settled(own) == [("data", "retained", REASONS[SafeRow.BOUND])]
    assert own.node_of("db") == "n2"


def test_p1_a_binding_of_the_pod_that_is_given_up_can_never_land(own: Attached) -> None:
    prebound(own, "data")
    own.controller.bind()
    own.fault("late-write", "pods", seconds=NEVER)
    own.until(lambda: 'bind Pod "default/db"' in own.sent)
    sent = own.pod("db")["metadata"]
    own.running.http.delete("/api/v1/nodes/n1")

    own.until(lambda: [state for _, state, _ in own.legs()] == ["retained"], seconds=1)
    versions = {"uid": sent["uid"], "resourceVersion": sent["resourceVersion"]}
    late = {"metadata": {"name": "db", **versions}, "target": {"kind": "Node", "name": "n1"}}
    assert own.running.http.post("/api/v1/namespaces/default/pods/db/binding", json=late).status_code == 409
    assert own.node_of("db") is None


def test_p2_a_node_whose_kubelet_rejects_is_avoided_for_five_minutes_and_the_claims_stay(own: Attached) -> None:
    prebound(own, "data")
    own.controller.bind()
    own.until(lambda: own.node_of("db") == "n1" and own.has_settled())
    rejects = {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}}
    path = "/api/v1/namespaces/default/pods/db/status"
    assert own.running.http.patch(path, json=rejects, headers=MERGE).status_code == 200
    # Its owner makes another, which has to wait for the volume's node; one that is free to choose goes elsewhere.
    own.create(node("n2"), volume("small-2", "5Gi", "n2"), ours("again", "data"), ours("free", "logs"))
    own.until(lambda: own.given_to("small-2") == "logs" and own.pod("again").get("status", {}).get("conditions"))
    assert (own.given_to("small-1"), own.node_of("again")) == ("data", None)
    assert "rejected" in own.pod("again")["status"]["conditions"][0]["message"]
    own.controller.bind()
    own.wait(6 * 60)
    own.until(lambda: own.node_of("again") == "n1")
