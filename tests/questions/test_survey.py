"""Explaining on many nodes says the same as on few, and judges only some of them."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.scheduling.index_streams import Stream
from tests.support.objects import capacity, claim, driver, dynamic_class, in_zone, node, pod
from volsched.kube.meta import ZONE
from volsched.kube.quantity import parse_quantity
from volsched.kube.workloads import Node, Pod
from volsched.lab.bench.decide import CLUSTERS, claims_of, pod_of
from volsched.questions.explain.remedies import find_remedies
from volsched.questions.explain.survey import SMALL, NodeSurroundings, survey
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import VOLSCHED

NODES = 90


def surveyed(index: Index, wanting: Pod) -> tuple[NodeSurroundings, dict[tuple[str, ...], int], int]:
    around = NodeSurroundings(index.snapshot, wanting, VOLSCHED)
    found = survey(index, wanting, around)
    return around, {it.status.reasons: it.count for it in found.refusals()}, len(found.verdicts)


def test_nodes_are_counted_as_if_each_had_been_judged() -> None:
    cluster = CLUSTERS["local"](NODES)
    large = [replace(it, requests={"storage": parse_quantity("11Gi")}) for it in claims_of("app", 1)]
    wanting = pod_of("app", [it.name for it in large])
    nodes = [
        replace(it, unschedulable=True) if isinstance(it, Node) and it.name.endswith("7") else it
        for it in cluster.objects
    ]
    index = Index([*nodes, *large, wanting])
    assert len(index.snapshot.nodes) * len(index.snapshot.stored_volumes) > SMALL
    _, counts, judged = surveyed(index, wanting)
    every = attempt(index.snapshot, wanting, profile=replace(VOLSCHED, explains=False))
    assert counts == dict(Counter(it.status.reasons for it in every.verdicts))
    assert judged < NODES // 2


def test_the_one_volume_of_many_that_nearly_does_is_found() -> None:
    """It is on one node of ninety, and all it takes is to uncordon that node."""
    cluster = CLUSTERS["local"](NODES)
    wanted = [replace(it, requests={"storage": parse_quantity("11Gi")}) for it in claims_of("app", 1)]
    wanting = pod_of("app", [it.name for it in wanted])
    objects = {(type(it), it.meta.key): it for it in cluster.objects}
    keys = sorted(key for kind, key in objects if kind.__name__ == "Volume")
    near = next(it for it in cluster.objects if it.meta.key == keys[555])
    assert hasattr(near, "capacity")
    objects[type(near), near.meta.key] = replace(near, capacity={"storage": parse_quantity("12Gi")})  # type: ignore[type-var]
    host = objects[Node, "node-00055"]
    assert isinstance(host, Node)
    objects[Node, host.name] = replace(host, unschedulable=True)
    index = Index([*objects.values(), *wanted, wanting])
    around = NodeSurroundings(index.snapshot, wanting, VOLSCHED)
    first, *_ = find_remedies(index, around, survey(index, wanting, around))
    assert [change.text for change in first.changes] == ["uncordon node node-00055"]


def test_the_place_with_the_most_room_is_found() -> None:
    places = [{"matchLabels": {"kubernetes.io/hostname": f"n{i:03}"}} for i in range(250)]
    rooms = [capacity(f"cap-{i:03}", "9Gi" if i == 150 else "5Gi", topology=it) for i, it in enumerate(places)]
    wanting = pod("x")
    nodes = [node(f"n{i:03}") for i in range(250)]
    index = Index([*nodes, *rooms, dynamic_class(), driver(), claim("x", "10Gi", cls="dyn"), wanting])
    assert len(nodes) * len(rooms) > SMALL
    around = NodeSurroundings(index.snapshot, wanting, VOLSCHED)
    first, *_ = find_remedies(index, around, survey(index, wanting, around))
    assert [change.text for change in first.changes] == [
        "raise the capacity of csi/cap-150 for class dyn from 9Gi to 10Gi"
    ]


@pytest.mark.parametrize("seed", range(0, 60, 20))
def test_a_node_is_judged_by_its_surroundings_as_in_the_whole_cluster(seed: int) -> None:
    """Pods elsewhere are left out unless they matter: by affinity, by spreading, by a claim of their own."""
    judged = 0
    for each in range(seed, seed + 20):
        index = Index(profile=VOLSCHED)
        stream = Stream(each, index)
        for turn in range(6):
            for _ in range(12):
                stream.step()
            wanting = stream.ask(turn)
            around = NodeSurroundings(index.snapshot, wanting, VOLSCHED)
            whole = attempt(index.snapshot, wanting, profile=replace(VOLSCHED, explains=True))
            for verdict in whole.verdicts:
                (on_node,) = around.judge(verdict.node).verdicts
                assert (on_node.status, on_node.plugin) == (verdict.status, verdict.plugin), (each, turn)
                judged += 1
    assert judged > 100


def test_a_pod_of_the_zone_that_wants_nobody_near_refuses_on_every_node_of_it() -> None:
    terms = [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}]
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    lonely = pod(name="lonely", on="n1", affinity=alone)
    wanting = pod(name="web", labels={"app": "web"})
    index = Index([in_zone("n1", "a"), in_zone("n2", "a"), in_zone("n3", "b"), lonely, wanting])
    around = NodeSurroundings(index.snapshot, wanting, VOLSCHED)
    judged = {name: around.judge(name).chosen is not None for name in ("n1", "n2", "n3")}
    assert judged == {"n1": False, "n2": False, "n3": True}
