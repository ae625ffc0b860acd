"""StatefulSets end to end on local volumes: order, scaling, replacement, rolling updates, crashes."""

import itertools
from functools import partial

import pytest

from tests.support.clusters import Manifest, Stepped, claim, pod, volume
from tests.support.stateful_sets import stateful_set
from tests.workloads.played_sets import change, disks, ephemeral_pod, names, uid
from volsched.cluster.port import whole
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.fold import Decision, States
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.objects.rules.admission import Origin
from volsched.objects.rules.object_events import created_event
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND


def test_a_set_gets_its_pods_claims_and_volumes(database: Database) -> None:
    stepped = Stepped(database, [*disks(3), stateful_set()])
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    stepped.settle()
    assert names(stepped, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "data-db-2"]
    assert len({stepped.volume_of(f"data-db-{i}") for i in range(3)}) == 3
    found = stepped.cluster.get("StatefulSet", "default/db") or {}
    counted = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
    assert [found["status"][name] for name in counted] == [3] * 5
    (revision,) = names(stepped, "ControllerRevision")
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"] == revision
    assert verify(stepped.database).ok


def test_pods_are_made_in_order_each_when_the_one_before_has_a_node(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=4))
    seen: list[list[str]] = []
    for _ in range(80):
        stepped.step(after=SECOND // 10)
        pods = names(stepped, "Pod")
        assert all(stepped.node_of(name) for name in pods[:-1])
        if not seen or seen[-1] != pods:
            seen.append(pods)
    # Three disks for four pods: the last one is made, and waits.
    assert seen[-1] == ["db-0", "db-1", "db-2", "db-3"]
    assert [len(it) for it in seen if it] == [1, 2, 3, 4]
    assert stepped.node_of("db-3") is None


def test_a_pod_that_finds_no_node_holds_up_the_next(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=6))
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0", "db-1", "db-2", "db-3"]
    assert (stepped.cluster.get("StatefulSet", "default/db") or {})["status"]["readyReplicas"] == 3
    stepped.create(volume("late", "2Gi", "node-0"))
    stepped.until(lambda: "db-4" in names(stepped, "Pod"))


def test_parallel_pods_do_not_wait_for_each_other(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=5, podManagementPolicy="Parallel"))
    stepped.step()
    assert len(names(stepped, "Pod")) == 5
    assert len(names(stepped, "PersistentVolumeClaim")) == 5


def test_a_deleted_pod_comes_back_to_its_claim_and_its_node(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    before = (stepped.node_of("db-1"), stepped.volume_of("data-db-1"), uid(stepped, "Pod", "db-1"))
    stepped.cluster.delete("Pod", "default/db-1")
    stepped.until(lambda: stepped.node_of("db-1") is not None)
    assert (stepped.node_of("db-1"), stepped.volume_of("data-db-1")) == before[:2]
    assert uid(stepped, "Pod", "db-1") != before[2]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_come_to_its_end_is_replaced(stepped: Stepped, phase: str) -> None:
    stepped.create(stateful_set(replicas=1))
    stepped.until(lambda: stepped.node_of("db-0") is not None)
    old = uid(stepped, "Pod", "db-0")
    change(stepped, "Pod", "default/db-0", status=True, phase=phase)
    stepped.until(lambda: stepped.node_of("db-0") is not None and uid(stepped, "Pod", "db-0") != old)
    assert stepped.messages("SuccessfulDelete") == ["Delete Pod db-0 in StatefulSet db successful"]


def test_scaling_down_takes_the_highest_first_and_keeps_the_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    change(stepped, "StatefulSet", "default/db", replicas=1)
    stepped.step()
    assert names(stepped, "Pod") == ["db-0", "db-1"]
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0"]
    assert len(names(stepped, "PersistentVolumeClaim")) == 3
    kept = [stepped.volume_of(f"data-db-{i}") for i in range(3)]
    change(stepped, "StatefulSet", "default/db", replicas=3)
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    assert [stepped.volume_of(f"data-db-{i}") for i in range(3)] == kept


def test_a_deleted_set_takes_its_pods_along_and_leaves_its_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set(), pod("other"))
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.settle()
    assert names(stepped, "Pod") == ["other"]
    assert names(stepped, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "data-db-2"]
    assert all(stepped.volume_of(f"data-db-{i}") for i in range(3))


def test_a_set_made_anew_gets_new_pods_on_the_old_claims(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    volumes = [stepped.volume_of(f"data-db-{i}") for i in range(3)]
    old = uid(stepped, "Pod", "db-0")
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.create(stateful_set())
    stepped.until(lambda: "db-0" in names(stepped, "Pod") and uid(stepped, "Pod", "db-0") != old)
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))
    assert [stepped.volume_of(f"data-db-{i}") for i in range(3)] == volumes


def test_a_pod_is_not_made_on_a_claim_that_is_going(stepped: Stepped) -> None:
    stepped.create(stateful_set(replicas=1), pod("holder", "data-db-0"))
    stepped.until(lambda: bool(stepped.node_of("db-0")) and bool(stepped.node_of("holder")))
    # The holder keeps the claim from going while the set's own pod is gone already.
    stepped.cluster.delete("PersistentVolumeClaim", "default/data-db-0")
    old = uid(stepped, "PersistentVolumeClaim", "data-db-0")
    stepped.cluster.delete("Pod", "default/db-0")
    stepped.settle()
    assert names(stepped, "Pod") == ["holder"]
    assert stepped.messages("FailedCreate") == [
        "Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"
    ]
    stepped.cluster.delete("Pod", "default/holder")
    stepped.until(lambda: bool(stepped.node_of("db-0")))
    assert uid(stepped, "PersistentVolumeClaim", "data-db-0") != old


def test_a_pod_of_somebody_else_is_reported_and_left_alone(stepped: Stepped) -> None:
    stepped.create(pod("db-1"), stateful_set())
    stepped.settle()
    assert names(stepped, "Pod") == ["db-0", "db-1"]
    assert stepped.messages("FailedCreate") == [
        'pod "db-1" exists and does not belong to this set; delete it, or give the set another name'
    ]
    stepped.cluster.delete("Pod", "default/db-1")
    stepped.until(lambda: all(stepped.node_of(f"db-{i}") for i in range(3)))


def test_with_node_agents_a_pod_counts_when_it_runs(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(3), stateful_set()], node_agent=True)
    stepped.until(lambda: "db-1" in names(stepped, "Pod"))
    first = stepped.cluster.get("Pod", "default/db-0") or {}
    assert first["status"]["phase"] == "Running"
    stepped.until(lambda: (stepped.cluster.get("StatefulSet", "default/db") or {})["status"]["readyReplicas"] == 3)
    change(stepped, "StatefulSet", "default/db", replicas=1)
    stepped.until(lambda: names(stepped, "Pod") == ["db-0"])
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.until(lambda: names(stepped, "Pod") == [])
    assert len(names(stepped, "PersistentVolumeClaim")) == 3


def images(stepped: Stepped) -> list[str]:
    return [it["spec"]["containers"][0]["image"] for it in whole(stepped.cluster.list("Pod")).objects]


def template(image: str) -> Manifest:
    return {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "main", "image": image}]}}


def test_a_new_template_rolls_from_the_highest_down_and_can_be_undone(database: Database) -> None:
    stepped = Stepped(database, [*disks(3), stateful_set(template=template("app:1"))], node_agent=True)

    def complete() -> bool:
        found = stepped.cluster.get("StatefulSet", "default/db") or {}
        return bool(found.get("status", {}).get("readyReplicas") == 3)

    stepped.until(complete)
    kept = [stepped.volume_of(f"data-db-{i}") for i in range(3)]
    change(stepped, "StatefulSet", "default/db", template=template("app:2"))
    seen: list[list[str]] = []
    for _ in range(400):
        stepped.step(after=SECOND // 10)
        if len(found := images(stepped)) == 3 and (not seen or seen[-1] != found):
            seen.append(found)
        if found == ["app:2"] * 3 and complete():
            break
    one, two = "app:1", "app:2"
    assert seen == [[one, one, one], [one, one, two], [one, two, two], [two, two, two]]
    stepped.settle()
    told = (stepped.cluster.get("StatefulSet", "default/db") or {})["status"]
    assert told["currentRevision"] == told["updateRevision"]
    assert (told["currentReplicas"], told["updatedReplicas"]) == (3, 3)
    change(stepped, "StatefulSet", "default/db", template=template("app:1"))
    stepped.until(lambda: images(stepped) == ["app:1"] * 3 and complete(), steps=1000)
    stepped.settle()
    assert sorted(it["revision"] for it in whole(stepped.cluster.list("ControllerRevision")).objects) == [2, 3]
    assert [stepped.volume_of(f"data-db-{i}") for i in range(3)] == kept
    stepped.cluster.delete("StatefulSet", "default/db")
    stepped.until(lambda: names(stepped, "ControllerRevision") == [])
    assert verify(stepped.database).ok


def test_several_claims_of_a_pod_need_one_node(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [*disks(2), stateful_set(replicas=1, templates=2)])
    stepped.settle()
    assert stepped.node_of("db-0") is None
    stepped.create(volume("more", "2Gi", "node-1"))
    stepped.until(lambda: stepped.node_of("db-0") == "node-1")
    assert {stepped.volume_of("data-db-0"), stepped.volume_of("data1-db-0")} == {"disk-1-0", "more"}


def test_a_name_that_cannot_be_is_reported_and_not_tried_for_ever(stepped: Stepped) -> None:
    stepped.create(stateful_set("d" * 63, replicas=1))
    stepped.settle()
    assert names(stepped, "Pod") == []
    assert len(stepped.messages("FailedCreate")) == 1
    assert stepped.system.next_due() is None


def admitted(stepped: Stepped, manifest: Manifest) -> None:
    """As a lenient request over HTTP leaves it in the store: its fields are the request's to check."""
    author = Author("user", "2026-11-19T12:00:00Z", Origin.API)
    write = door.create(manifest["kind"], manifest, author, uid=f"uid-{manifest['metadata']['name']}")
    (outcome,) = execute(stepped.database, [write.command], now=stepped.now)
    assert isinstance(outcome, Done)


def test_fields_that_a_template_was_admitted_with_are_copied(stepped: Stepped) -> None:
    """Of a newer Kubernetes, say. A controller that refuses them would stop a set that has run for weeks."""
    set_, web = stateful_set(replicas=1), ephemeral_pod("web", "a")
    set_["spec"]["template"]["spec"]["ofTomorrow"] = True
    set_["spec"]["volumeClaimTemplates"][0]["spec"]["ofTomorrow"] = True
    template = web["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]
    web["spec"]["volumes"][0]["ephemeral"] = {
        "volumeClaimTemplate": {**template, "spec": {**template["spec"], "ofTomorrow": True}}
    }
    admitted(stepped, set_)
    admitted(stepped, web)
    stepped.until(lambda: stepped.node_of("db-0") is not None and stepped.node_of("web") is not None)
    made = [("Pod", "db-0"), ("PersistentVolumeClaim", "data-db-0"), ("PersistentVolumeClaim", "web-a")]
    assert all((stepped.cluster.get(kind, f"default/{name}") or {})["spec"]["ofTomorrow"] for kind, name in made)


def test_a_template_that_no_object_can_be_made_of_is_reported(stepped: Stepped) -> None:
    """Nobody checks what is imported: it was another store's."""
    set_, web = stateful_set(replicas=1), ephemeral_pod("web", "a")
    set_["metadata"]["uid"] = web["metadata"]["uid"] = "imported"
    set_["spec"]["template"]["spec"]["hostNetwork"] = "perhaps"
    template = {"metadata": {"labels": {"tier": 1}}, "spec": claim("x", "1Gi")["spec"]}
    web["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"] = template
    for stream, manifest in (("statefulset/default/db", set_), ("pod/default/web", web)):
        write = Command(actor="test", streams=(stream,), decide=partial(created, stream, manifest))
        (outcome,) = execute(stepped.database, [write], now=stepped.now)
        assert isinstance(outcome, Done)
    stepped.settle()
    assert "cannot unmarshal string into Go struct field" in stepped.messages("FailedCreate")[0]
    assert "cannot unmarshal number into Go struct field" in stepped.messages("FailedBinding")[0]
    assert stepped.system.next_due() is None


def created(stream: str, manifest: Manifest, _: States) -> Decision:
    return Decision(events=(created_event(stream, manifest),))


def test_a_set_goes_on_when_its_namespace_does_not_go_after_all(stepped: Stepped) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    stepped.create(space)
    stepped.create(stateful_set(replicas=1))
    change(stepped, "Namespace", "default", status=True, phase="Terminating")
    stepped.settle()
    assert names(stepped, "Pod") == []
    change(stepped, "Namespace", "default", status=True, phase="Active")
    stepped.until(lambda: stepped.node_of("db-0") is not None)


def test_two_systems_make_every_pod_once(sqlite: Database) -> None:
    first = Stepped(sqlite, [*disks(3), stateful_set(podManagementPolicy="Parallel")])
    second = Stepped(sqlite, owner="second")
    for system in (first, second):
        system.system.catch_up(system.now)
    for _ in range(60):
        first.step(after=SECOND // 10)
        second.step(after=SECOND // 10)
    assert names(first, "Pod") == ["db-0", "db-1", "db-2"]
    created = [
        it["count"] for it in whole(first.cluster.list("Event")).objects if it["reason"] == "SuccessfulCreate"
    ]
    assert created == [1] * 6


def test_a_set_that_was_scaled_since_it_was_read_gets_nothing(stepped: Stepped) -> None:
    stepped.create(stateful_set())
    stepped.system.catch_up(stepped.now)
    change(stepped, "StatefulSet", "default/db", replicas=0)
    assert [part.step(stepped.now) for part in stepped.system.parts] == [0, 1, 0, 0, 0, 0, 0, 0]
    assert names(stepped, "Pod") == []
    assert names(stepped, "PersistentVolumeClaim") == []


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
@pytest.mark.parametrize("nth", range(1, 16, 2))
def test_a_process_may_die_at_any_commit(sqlite: Database, point: str, nth: int) -> None:
    objects = [*disks(2, each=2), stateful_set(replicas=2), ephemeral_pod("web", "a"), ephemeral_pod("web2", "a")]
    first = Stepped(sqlite, objects)
    left = itertools.count(nth, -1)

    def die(reached: str) -> None:
        if reached == point and next(left) == 1:
            raise fault_points.FaultError

    fault_points.arm(die, drill=True)
    try:
        with pytest.raises(fault_points.FaultError):
            first.until(lambda: False, steps=300)
    finally:
        fault_points.arm(None, drill=False)
    second = Stepped(sqlite, owner="second")
    second.now = first.now + 60 * SECOND
    pods = ["db-0", "db-1", "web", "web2"]
    second.until(lambda: all(second.node_of(name) for name in pods))
    second.settle()
    assert names(second, "Pod") == pods
    assert names(second, "PersistentVolumeClaim") == ["data-db-0", "data-db-1", "web-a", "web2-a"]
    created = [
        it["count"] for it in whole(second.cluster.list("Event")).objects if it["reason"] == "SuccessfulCreate"
    ]
    assert created == [1] * 4
    assert verify(sqlite).ok
