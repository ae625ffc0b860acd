"""PodTopologySpread: pods are to be spread evenly."""

from dataclasses import replace
from typing import Any

import pytest

from tests.scheduling.plugin_verdicts import refusals, scores, statuses
from tests.support.objects import in_zone, needs, node, pod
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.topology_spread import PodTopologySpread
from volsched.scheduling.rules.status import Code

NODES = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{UNEVEN} (missing required label)"
DB = {"matchLabels": {"app": "db"}}


def constraint(
    key: str = ZONE, *, skew: int = 1, soft: bool = False, selector: Any = DB, **more: Any
) -> dict[str, Any]:
    action = "ScheduleAnyway" if soft else "DoNotSchedule"
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action, "labelSelector": selector, **more}


def placed(*nodes: str) -> list[Pod]:
    return [pod(name=f"db-{place}", on=on, labels={"app": "db"}) for place, on in enumerate(nodes)]


def wanting(*constraints: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    mine = {"app": "db"} if labels is None else labels
    return pod(labels=mine, topologySpreadConstraints=list(constraints), **spec)


def refused(asking: Pod, *others: Pod | Node) -> dict[str, str]:
    found = refusals(PodTopologySpread(), asking, [*NODES, *others])
    return {name: reason for name, (reason,) in found.items()}


IN_A = {"a1": UNEVEN, "a2": UNEVEN}


@pytest.mark.parametrize(
    ("given", "on", "expected"),
    [
        ([], ["a1", "a2"], {}),
        ([constraint()], [], {}),
        ([constraint()], ["a1"], IN_A),
        ([constraint(skew=2)], ["a1"], {}),
        ([constraint(skew=2)], ["a1", "a2"], IN_A),
        ([constraint()], ["a1", "b1"], {}),
        ([constraint(HOSTNAME)], ["a1"], {"a1": UNEVEN}),
        ([constraint(), constraint(HOSTNAME)], ["a1", "b1"], {"a1": UNEVEN, "b1": UNEVEN}),
        ([constraint(soft=True)], ["a1"], {}),
        ([constraint("rack")], [], dict.fromkeys(["a1", "a2", "b1"], NO_LABEL)),
        ([constraint(selector=None)], ["a1"], {}),
        # It would select every pod, but the reference counts none.
        ([constraint(selector={})], ["a1"], {}),
        # With fewer domains than that, the emptiest of all counts as empty.
        ([constraint(minDomains=3)], ["a1", "b1"], {**IN_A, "b1": UNEVEN}),
        ([constraint(minDomains=2)], ["a1", "b1"], {}),
        (
            [constraint(selector={"matchExpressions": [needs("app", "Bogus")]})],
            [],
            {"": 'get constraints from pod: "Bogus" is not a valid label selector operator'},
        ),
    ],
)
def test_no_domain_may_have_more_than_the_skew_above_the_emptiest(
    given: list[dict[str, Any]], on: list[str], expected: dict[str, str]
) -> None:
    assert refused(wanting(*given), *placed(*on)) == expected


def test_a_pod_that_its_own_constraint_does_not_mean_adds_nothing() -> None:
    other = wanting(constraint(), labels={"app": "web"})
    assert refused(other, *placed("a1")) == {}
    assert refused(other, *placed("a1", "a2")) == IN_A


@pytest.mark.parametrize(
    "other",
    [
        pod(name="x", on="a1", namespace="web", labels={"app": "db"}),
        pod(name="x", on="a1", phase="Failed", labels={"app": "db"}),
        pod(name="app", on="a1", labels={"app": "db"}),
        pod(name="x", on="a1", labels={"app": "web"}),
    ],
)
def test_only_living_pods_of_the_namespace_count(other: Pod) -> None:
    assert refused(wanting(constraint()), other) == {}


def test_a_pod_that_is_leaving_does_not_count() -> None:
    (leaving,) = placed("a1")
    leaving = replace(leaving, meta=replace(leaving.meta, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert refused(wanting(constraint()), leaving) == {}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        # The pod may not be in zone c anyway: whether that empty zone counts is what the policy says.
        ({}, {}),
        ({"nodeAffinityPolicy": "Honor"}, {}),
        ({"nodeAffinityPolicy": "Ignore"}, {**IN_A, "b1": UNEVEN}),
    ],
)
def test_nodes_that_the_pod_does_not_select_are_left_out(
    policies: dict[str, str], expected: dict[str, str]
) -> None:
    chosen = {"nodeSelector": {"disk": "ssd"}}
    nodes = [replace(it, meta=replace(it.meta, labels={**it.labels, "disk": "ssd"})) for it in NODES]
    found = refusals(
        PodTopologySpread(),
        wanting(constraint(**policies), **chosen),
        [*nodes, in_zone("c1", "c"), *placed("a1", "b1")],
    )
    assert {name: reason for name, (reason,) in found.items()} == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, {**IN_A, "b1": UNEVEN}),
        ({"nodeTaintsPolicy": "Ignore"}, {**IN_A, "b1": UNEVEN}),
        ({"nodeTaintsPolicy": "Honor"}, {}),
    ],
)
def test_nodes_with_taints_count_unless_taints_are_honoured(
    policies: dict[str, str], expected: dict[str, str]
) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    tainted = node("c1", labels={HOSTNAME: "c1", ZONE: "c"}, spec={"taints": taints})
    assert refused(wanting(constraint(**policies)), tainted, *placed("a1", "b1")) == expected


@pytest.mark.parametrize(("version", "expected"), [("1", IN_A), ("2", {})])
def test_label_keys_count_only_pods_of_the_same_sort(version: str, expected: dict[str, str]) -> None:
    other = pod(name="old", on="a1", labels={"app": "db", "version": "1"})
    asking = wanting(constraint(matchLabelKeys=["version"]), labels={"app": "db", "version": version})
    assert refused(asking, other) == expected


def test_an_eviction_helps_against_skew_but_not_against_a_missing_label() -> None:
    found = statuses(PodTopologySpread(), wanting(constraint()), [*NODES, node("bare", labels={}), *placed("a1")])
    assert (found["a1"].code, found["bare"].code) == (Code.UNSCHEDULABLE, Code.UNRESOLVABLE)


@pytest.mark.parametrize(
    ("given", "on", "expected"),
    [
        ([constraint()], ["a1"], {"a1": 0, "a2": 0, "b1": 0, "bare": 0}),
        # Nobody is anywhere yet: nodes with the label are as good as each other, and better than one without.
        ([constraint(soft=True)], [], {"a1": 100, "a2": 100, "b1": 100, "bare": 0}),
        ([constraint(soft=True)], ["a1", "a2"], {"a1": 0, "a2": 0, "b1": 100, "bare": 0}),
        # Two in zone a, one in zone b: (3 + 1 - 3) / 3 and (3 + 1 - 1) / 3, by ln(2 zones + 2).
        ([constraint(soft=True)], ["a1", "a2", "b1"], {"a1": 33, "a2": 33, "b1": 100, "bare": 0}),
        # The larger the skew that is allowed, the less a difference counts.
        ([constraint(soft=True, skew=5)], ["a1", "a2"], {"a1": 57, "a2": 57, "b1": 100, "bare": 0}),
        ([constraint(HOSTNAME, soft=True)], ["a1", "a1", "b1"], {"a1": 0, "a2": 100, "b1": 33, "bare": 0}),
        (
            [constraint(soft=True), constraint(HOSTNAME, soft=True)],
            ["a1", "a2", "a2"],
            {"a1": 14, "a2": 0, "b1": 100, "bare": 0},
        ),
    ],
)
def test_the_emptier_its_domains_the_better_a_node(
    given: list[dict[str, Any]], on: list[str], expected: dict[str, int]
) -> None:
    there = [*NODES, node("bare", labels={}), *placed(*on)]
    assert scores(PodTopologySpread(), wanting(*given), there) == expected
