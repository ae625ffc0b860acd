"""Constraints of pods through the index: as its users meet them, one pod after the other."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects import BY_NAME, claim, in_zone, local_volume, node, pod, storage_class
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, attempt

DB = {"matchLabels": {"app": "db"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def near(key: str) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": DB}]}}


def far(key: str) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": key, "labelSelector": DB}]}}


def replica(ordinal: int, **spec: Any) -> Pod:
    """A pod of a StatefulSet: every one has a label of its own."""
    labels = {"app": "db", "statefulset.kubernetes.io/pod-name": f"db-{ordinal}"}
    return pod(f"data-db-{ordinal}", name=f"db-{ordinal}", labels=labels, **spec)


def cluster(*more: Object) -> Index:
    """Two zones of two nodes, each node with two local volumes."""
    nodes = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b"), in_zone("b2", "b")]
    volumes = [local_volume(f"{it.name}-{n}", "5Gi", it.name) for it in nodes for n in range(2)]
    claims = [claim(f"data-db-{ordinal}", "5Gi") for ordinal in range(6)]
    return Index([*nodes, storage_class(), *volumes, *claims, *more], profile=BY_NAME)


def decided(index: Index, wanting: Pod) -> Attempt:
    """Checked against the rules."""
    made = index.decide(wanting)
    rules = attempt(index.snapshot, wanting, profile=replace(BY_NAME, explains=False))
    assert (made.status, made.rejectors) == (rules.status, rules.rejectors)
    assert made.chosen == rules.chosen
    return made


def placed(index: Index, wanting: Pod) -> str | None:
    """Decide and take, as a scheduler does."""
    made = decided(index, wanting)
    if made.chosen is None:
        return None
    for binding in made.chosen.answer.bindings:
        index.put(replace(binding.volume, phase="Bound"))
    index.put(replace(wanting, node_name=made.chosen.node))
    return made.chosen.node


def test_replicas_that_keep_apart_each_get_a_node_of_their_own_until_there_is_none() -> None:
    index = cluster()
    found = [placed(index, replica(ordinal, affinity=far(HOSTNAME))) for ordinal in range(5)]
    assert found == ["a1", "a2", "b1", "b2", None]
    refused = decided(index, replica(5, affinity=far(HOSTNAME)))
    assert refused.status.reasons == ("0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules.",)
    assert refused.rejectors == {"InterPodAffinity"}
    index.drop(Pod, "db/db-1")
    assert placed(index, replica(5, affinity=far(HOSTNAME))) == "a2"


def test_replicas_that_keep_apart_by_zone_find_as_many_as_there_are_zones() -> None:
    index = cluster()
    assert [placed(index, replica(n, affinity=far(ZONE))) for n in range(3)] == ["a1", "b1", None]


def test_replicas_that_stay_together_share_a_node_while_it_has_volumes() -> None:
    index = cluster()
    assert [placed(index, replica(n, affinity=near(HOSTNAME))) for n in range(2)] == ["a1", "a1"]
    refused = decided(index, replica(2, affinity=near(HOSTNAME)))
    assert refused.status.reasons == (
        "0/4 nodes are available: 1 node(s) didn't find available persistent volumes to bind, "
        "3 node(s) didn't match pod affinity rules.",
    )
    assert refused.rejectors == {"VolumeBinding", "InterPodAffinity"}


def test_a_volume_that_binds_where_a_neighbour_is_not_wanted_leaves_the_pod_without_a_node() -> None:
    """The negative case: the only free volume is in the zone that is forbidden."""
    index = Index(
        [in_zone("a1", "a"), in_zone("b1", "b"), storage_class(), claim("data-db-1", "5Gi")], profile=BY_NAME
    )
    index.put(local_volume("only", "5Gi", "a1"))
    index.put(pod(name="db-0", on="a1", labels={"app": "db"}))
    refused = decided(index, replica(1, affinity=far(ZONE)))
    assert refused.status.reasons == (
        "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, "
        "1 node(s) didn't match pod anti-affinity rules.",
    )


def test_replicas_are_spread_evenly_over_zones() -> None:
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": DB}]
    index = cluster()
    found = [placed(index, replica(n, topologySpreadConstraints=spread)) for n in range(4)]
    assert found == ["a1", "b1", "a1", "b1"]


def sized(name: str, **more: Any) -> Node:
    return node(name, status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}, **more)


def asking(name: str, cpu: str) -> Pod:
    return pod(name=name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])


def test_pods_without_claims_go_where_most_is_left_until_nothing_is() -> None:
    index = Index([sized("n1"), sized("n2")], profile=BY_NAME)
    assert [placed(index, asking(f"p{n}", "2")) for n in range(5)] == ["n1", "n2", "n1", "n2", None]
    assert decided(index, asking("more", "1")).rejectors == {"NodeResourcesFit"}
    # A pod that has ended takes nothing, and a node that grows has more.
    index.put(replace(asking("p0", "2"), node_name="n1", phase="Succeeded"))
    assert placed(index, asking("p6", "2")) == "n1"
    index.put(node("n2", status={"allocatable": {"cpu": "8", "memory": "8Gi"}}))
    assert placed(index, asking("p7", "2")) == "n2"


def test_a_node_that_comes_after_its_pods_is_loaded_with_them() -> None:
    index = Index([replace(asking("early", "3"), node_name="late")], profile=BY_NAME)
    index.put(sized("late"))
    assert placed(index, asking("next", "2")) is None
    index.drop(Node, "late")
    index.put(sized("other"))
    assert placed(index, asking("next", "2")) == "other"


def test_a_pod_is_no_burden_to_itself() -> None:
    index = Index([sized("n1"), replace(asking("big", "4"), node_name="n1")], profile=BY_NAME)
    assert decided(index, asking("big", "4")).chosen is not None
    assert decided(index, asking("big", "4")) == decided(index, asking("big", "4"))
    assert decided(index, asking("other", "1")).chosen is None


@pytest.mark.parametrize("claims", [(), ("data",)])
def test_reasons_are_counted_over_thousands_of_nodes(claims: tuple[str, ...]) -> None:
    """And hardly a node is looked at: the rules would take seconds here."""
    taint = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
    nodes = [
        sized(f"n{number:04}", spec={"unschedulable": True} if number < 10 else taint if number < 100 else {})
        for number in range(5000)
    ]
    index = Index([*nodes, storage_class(), claim("data", "1Gi")], profile=BY_NAME)
    made = index.decide(replace(asking("big", "5"), volumes=pod(*claims).volumes))
    assert made.status.reasons == (
        "0/5000 nodes are available: 10 node(s) were unschedulable, 4900 Insufficient cpu, "
        "90 node(s) had untolerated taint(s).",
    )
    assert sum(made.refused.values()) == 5000


def test_the_next_best_nodes_are_named_with_their_totals() -> None:
    index = Index([sized("n1"), sized("n2"), sized("n3"), sized("n4"), sized("n5")], profile=BY_NAME)
    index.put(replace(asking("other", "2"), node_name="n2"))
    made = index.decide(pod(name="next"))
    assert made.chosen is not None
    assert (made.chosen.node, made.chosen.scores) == ("n1", {"NodeResourcesFit": 100})
    assert [(it.node, it.score) for it in made.runners_up] == [("n3", 100), ("n4", 100), ("n5", 100)]


def test_nodes_that_turned_the_pod_away_are_left_out() -> None:
    made = cluster().decide(replica(0), avoid={"a1", "a2", "gone"})
    assert made.chosen is not None
    assert made.chosen.node == "b1"
    everywhere = cluster().decide(replica(0), avoid={"a1", "a2", "b1", "b2"})
    assert everywhere.status.reasons == ("0/4 nodes are available: 4 node(s) previously rejected the pod.",)
    assert everywhere.rejectors == {"NodeRejected"}


def test_a_pod_that_begins_to_leave_counts_no_longer_in_its_zone() -> None:
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": DB}]
    other = pod(name="other", on="a1", labels={"app": "db"})
    index = cluster(other)
    assert decided(index, replica(0, topologySpreadConstraints=spread)).chosen.node == "b1"  # type: ignore[union-attr]
    index.put(replace(other, meta=replace(other.meta, deletion_timestamp="2026-01-01T00:00:00Z")))
    assert decided(index, replica(0, topologySpreadConstraints=spread)).chosen.node == "a1"  # type: ignore[union-attr]


@pytest.mark.parametrize(("policy", "chosen"), [("Honor", "a1"), ("Ignore", None)])
def test_a_zone_of_tainted_nodes_counts_as_empty_unless_taints_are_honoured(
    policy: str, chosen: str | None
) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    index = Index([in_zone("a1", "a"), node("b1", labels={ZONE: "b"}, spec={"taints": taints})], profile=BY_NAME)
    index.put(pod(name="other", on="a1", labels={"app": "db"}))
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": DB}
    wanting = pod(labels={"app": "db"}, topologySpreadConstraints=[{**spread, "nodeTaintsPolicy": policy}])
    assert placed(index, wanting) == chosen
