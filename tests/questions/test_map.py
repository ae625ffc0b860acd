"""The map and the timeline: places by any label, states, counts and lists, the past, a namespace's border."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, START, Stepped, claim, node, pod, volume
from tests.support.volume_theft import take
from volsched import Engine
from volsched.kube.meta import LEGACY_ZONE, ZONE
from volsched.log.database import Database
from volsched.questions.refusals import QuestionError
from volsched.runtime.clock import SECOND

RACK = "example.com/rack"


def zonal(name: str, size: str, zone: str) -> dict[str, Any]:
    made = volume(name, size, "-")
    term = {"key": ZONE, "operator": "In", "values": [zone]}
    made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    return made


def anywhere(name: str) -> dict[str, Any]:
    made = volume(name, "1Gi", "-")
    del made["spec"]["nodeAffinity"], made["spec"]["local"]
    made["spec"]["nfs"] = {"server": "files", "path": "/share"}
    return made


@pytest.fixture
def stepped(database: Database) -> Stepped:
    nodes = [node(f"n{i}", **{ZONE: f"z{i // 2}", RACK: f"r{i}"}) for i in range(4)]
    volumes = [volume(f"n{i}-disk", "4Gi", f"n{i}") for i in range(4)]
    others = [zonal("zone-disk", "8Gi", "z1"), anywhere("share"), volume("gone-disk", "2Gi", "n9")]
    stepped = Stepped(database, [LOCAL, *nodes, *volumes, *others])
    stepped.settle()
    return stepped


def drawn(stepped: Stepped, **asked: Any) -> dict[str, Any]:
    return Engine(stepped.database).ask("map", **asked)


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {it["name"]: it["state"] for it in answer["volumes"]}


def group(answer: dict[str, Any], *path: str) -> dict[str, Any]:
    (found,) = [it for it in answer["groups"] if it["path"] == list(path)]
    return found


def test_a_volume_is_on_its_node_in_its_zone_anywhere_or_out_of_reach(stepped: Stepped) -> None:
    places = {it["name"]: (it["path"], it["node"], it["reached"]) for it in drawn(stepped)["volumes"]}
    assert places["n0-disk"] == (["z0"], "n0", True)
    assert places["zone-disk"] == (["z1"], None, True)
    assert places["share"] == ([], None, True)
    assert places["gone-disk"] == ([], None, False)


def test_nodes_are_grouped_by_any_labels_and_every_level_is_counted(stepped: Stepped) -> None:
    answer = drawn(stepped, by=f"{ZONE},{RACK}")
    assert group(answer)["nodes"] == 4
    assert group(answer)["states"]["free"] == {"volumes": 7, "bytes": (4 * 4 + 8 + 1 + 2) * 2**30}
    assert group(answer, "z1")["states"]["free"]["volumes"] == 3
    assert group(answer, "z1")["own"]["free"]["volumes"] == 1
    assert group(answer, "z1", "r2")["nodes"] == 1
    assert set(answer["labels"]) >= {ZONE}
    with pytest.raises(QuestionError, match="grouped by 4 at most"):
        drawn(stepped, by="a,b,c,d,e")


def test_a_node_with_the_legacy_zone_label_is_in_its_zone(database: Database) -> None:
    assert group(drawn(Stepped(database, [node("old", **{LEGACY_ZONE: "z9"})])), "z9")["nodes"] == 1


def test_a_group_a_class_a_state_and_a_word_narrow_the_picture(stepped: Stepped) -> None:
    assert set(states(drawn(stepped, within="z1"))) == {"n2-disk", "n3-disk", "zone-disk"}
    assert [it["name"] for it in drawn(stepped, within="z1")["nodes"]] == ["n2", "n3"]
    assert set(states(drawn(stepped, text="N1"))) == {"n1-disk"}
    assert states(drawn(stepped, class_name="other")) == {}
    assert states(drawn(stepped, state="bound")) == {}
    assert set(states(drawn(stepped, node="n3"))) == {"n3-disk"}


def test_more_volumes_than_are_asked_for_are_counted_and_not_listed(stepped: Stepped) -> None:
    answer = drawn(stepped, detail=3)
    assert answer["volumes"] is None
    assert [it["states"]["free"]["volumes"] for it in answer["nodes"]] == [1, 1, 1, 1]
    answer = drawn(stepped, detail=1)
    assert answer["nodes"] is None
    assert group(answer, "z0")["states"]["free"]["volumes"] == 2


def test_what_the_database_counts_is_what_is_counted_one_by_one(stepped: Stepped) -> None:
    stepped.create(volume("n0-vast", "16Ti", "n0"), claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    stepped.create(claim("log", "3Gi"), pod("web", "log"), claim("huge", "99Ti"), pod("big", "huge"))
    stepped.plan_and_write()
    listed, head = drawn(stepped), str(drawn(stepped)["position"])
    assert {"assumed", "bound", "free"} <= set(states(listed).values())
    without_lists = {"volumes": None, "nodes": listed["nodes"]}
    # The present is counted where it is stored, the past is folded: they are the same at the head.
    for asked in ({"detail": 3}, {"detail": 3, "as_of": head}):
        assert drawn(stepped, **asked) | {"at": listed["at"]} == listed | without_lists
    for narrowed in (
        {"node": "n0"},
        {"within": "z1"},
        {"state": "bound"},
        {"class_name": "local", "state": "assumed"},
    ):
        assert drawn(stepped, detail=4, **narrowed) == drawn(stepped, **narrowed)


def test_the_map_of_a_past_moment_is_what_it_was_then(stepped: Stepped) -> None:
    before = drawn(stepped)["position"]
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.plan_and_write()
    assumed = drawn(stepped)
    (taken,) = [it for it in assumed["volumes"] if it["state"] == "assumed"]
    assert (taken["claim"], taken["pods"]) == ("default/data", ["default/db"])
    stepped.settle()
    bound = drawn(stepped)
    assert states(bound)[taken["name"]] == "bound"
    assert group(bound)["pods"] == 1
    assert set(states(drawn(stepped, as_of=str(before))).values()) == {"free"}
    past = drawn(stepped, as_of=str(assumed["position"]))
    assert states(past) == states(assumed)
    assert (past["head"], past["position"]) == (bound["head"], assumed["position"])
    (row,) = [it for it in bound["classes"] if "bound" in it["states"]]
    assert (row["requested"], row["states"]["bound"]["bytes"]) == (4 * 2**30, taken["bytes"])


def test_a_pod_without_a_node_has_a_place_of_its_own_with_its_reason(stepped: Stepped) -> None:
    stepped.create(claim("huge", "99Gi"), pod("big", "huge"))
    stepped.settle()
    answer = drawn(stepped)
    assert answer["waitingPods"] == 1
    (waits,) = answer["waiting"]
    assert (waits["pod"], waits["claims"]) == ("default/big", ["default/huge"])
    assert "didn't find available persistent volumes" in waits["reason"]


def test_a_claim_whose_volume_is_gone_is_drawn_as_lost(stepped: Stepped) -> None:
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    name = stepped.volume_of("data")
    assert name is not None
    found = dict(stepped.cluster.get("PersistentVolume", name) or {})
    stepped.cluster.update("PersistentVolume", {**found, "metadata": {**found["metadata"], "finalizers": []}})
    stepped.cluster.delete("PersistentVolume", name)
    stepped.settle()
    (lost,) = [it for it in drawn(stepped)["volumes"] if it["state"] == "lost"]
    assert (lost["name"], lost["claim"], lost["reached"]) == (name, "default/data", False)


def test_the_map_of_a_namespace_has_nothing_of_another(stepped: Stepped) -> None:
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    mine, others = drawn(stepped, namespace="default"), drawn(stepped, namespace="other")
    assert [it["claim"] for it in mine["volumes"]] == ["default/data"]
    assert len(mine["nodes"]) == 1
    assert (others["volumes"], others["nodes"], others["waiting"]) == ([], [], [])
    assert group(others)["states"] == {}


def test_the_timeline_has_both_ends_and_no_more_points_than_are_asked_for(stepped: Stepped) -> None:
    answer = Engine(stepped.database).ask("timeline", points=5)
    positions = [it[0] for it in answer["points"]]
    assert (positions[0], positions[-1]) == (answer["first"], answer["last"]) == (1, answer["head"])
    assert len(positions) <= 6
    assert answer["events"] == answer["head"]
    assert answer["points"][0][1] >= START
    window = Engine(stepped.database).ask("timeline", since="3", until="8", points=100)
    assert [it[0] for it in window["points"]] == [3, 4, 5, 6, 7, 8]


def test_the_timeline_marks_the_bindings_that_were_undone(stepped: Stepped) -> None:
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    (binding,) = stepped.bindings()
    take(stepped, stepped.legs(binding.id)[0].volume)
    stepped.until(lambda: stepped.node_of("db") is not None)
    stepped.now += SECOND
    answer = Engine(stepped.database).ask("timeline")
    (failed,) = answer["failures"]
    assert (failed["binding"], failed["pod"]) == (binding.id, "default/db")
    assert "changed by somebody else" in failed["reason"]
    assert Engine(stepped.database).ask("timeline", namespace="other")["failures"] == []
    mine = Engine(stepped.database).ask("timeline", namespace="default")
    assert len(mine["failures"]) == 1
    assert 0 < mine["events"] < answer["events"]


def test_events_are_searched_by_word_kind_type_and_actor_and_a_page_says_where_to_go_on(stepped: Stepped) -> None:
    ask = Engine(stepped.database).ask
    named = ask("audit events", text="n1-DISK")["items"]
    assert {it["object"] for it in named} == {"volume/n1-disk"}
    assert [it["position"] for it in named] == sorted((it["position"] for it in named), reverse=True)
    assert {it["type"] for it in ask("audit events", kind="node")["items"]} == {"NodeCreated"}
    assert ask("audit events", type="VolumeCreated", actor="nobody")["items"] == []
    first = ask("audit events", type="VolumeCreated", limit=4)
    rest = ask("audit events", type="VolumeCreated", limit=4, after=first["metadata"]["continue"])
    assert len({it["object"] for it in first["items"] + rest["items"]}) == 7
