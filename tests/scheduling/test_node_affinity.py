"""NodeAffinity and NodeName."""

from typing import Any

import pytest

from tests.scheduling.plugin_verdicts import refusals, scores
from tests.support.objects import in_zone, needs, node, pod
from volsched.kube.meta import ZONE
from volsched.scheduling.plugins.node_plugins import NodeAffinityPlugin, NodeName

NODES = [in_zone("a1", "a"), in_zone("b1", "b"), node("bare", labels={})]
NOT_SELECTED = ("node(s) didn't match Pod's node affinity/selector",)
NOT_NAMED = ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def named(operator: str, *names: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": list(names)}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({}, {}),
        ({"nodeSelector": {ZONE: "a"}}, {"b1": NOT_SELECTED, "bare": NOT_SELECTED}),
        ({"affinity": required({"matchExpressions": [needs(ZONE, "In", "a", "b")]})}, {"bare": NOT_SELECTED}),
        ({"affinity": required({"matchExpressions": [needs(ZONE, "NotIn", "a")]})}, {"a1": NOT_SELECTED}),
        (
            {"nodeSelector": {ZONE: "a"}, "affinity": required({"matchExpressions": [needs(ZONE, "In", "b")]})},
            dict.fromkeys(["a1", "b1", "bare"], NOT_SELECTED),
        ),
        ({"affinity": required()}, dict.fromkeys(["a1", "b1", "bare"], NOT_SELECTED)),
        ({"affinity": required({})}, dict.fromkeys(["a1", "b1", "bare"], NOT_SELECTED)),
        ({"affinity": required({"matchFields": [named("In", "b1")]})}, {"a1": NOT_NAMED, "bare": NOT_NAMED}),
        ({"affinity": required({"matchFields": [named("NotIn", "b1")]})}, {"b1": NOT_SELECTED}),
        (
            {
                "affinity": required(
                    {"matchFields": [named("In", "b1")], "matchExpressions": [needs(ZONE, "In", "a")]}
                )
            },
            {"a1": NOT_NAMED, "b1": NOT_SELECTED, "bare": NOT_NAMED},
        ),
        (
            {
                "affinity": required(
                    {"matchFields": [named("In", "b1")]}, {"matchExpressions": [needs(ZONE, "In", "a")]}
                )
            },
            {"bare": NOT_SELECTED},
        ),
        (
            {"affinity": required({"matchFields": [named("In", "a1"), named("In", "b1")]})},
            {"": ("pod affinity terms conflict",)},
        ),
    ],
)
def test_a_pod_goes_where_its_selector_and_one_of_its_terms_allow(
    spec: dict[str, Any], refused: dict[str, tuple[str, ...]]
) -> None:
    assert refusals(NodeAffinityPlugin(), pod(**spec), NODES) == refused


def test_the_weights_of_the_terms_that_are_met_add_up_and_the_most_is_a_hundred() -> None:
    terms = [
        {"weight": 30, "preference": {"matchExpressions": [needs(ZONE, "Exists")]}},
        {"weight": 10, "preference": {"matchExpressions": [needs(ZONE, "In", "a")]}},
        {"weight": 90, "preference": {}},
    ]
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    assert scores(NodeAffinityPlugin(), pod(affinity=preferred), NODES) == {"a1": 100, "b1": 75, "bare": 0}


def test_a_pod_that_names_its_node_goes_nowhere_else() -> None:
    elsewhere = ("node(s) didn't match the requested node name",)
    assert refusals(NodeName(), pod(on="a1"), NODES) == {"b1": elsewhere, "bare": elsewhere}
    assert refusals(NodeName(), pod(), NODES) == {}
