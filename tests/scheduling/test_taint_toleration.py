"""TaintToleration and NodeUnschedulable."""

from typing import Any

import pytest

from tests.scheduling.plugin_verdicts import refusals, scores, statuses
from tests.support.objects import node, pod
from volsched.kube.workloads import Node
from volsched.scheduling.plugins.node_plugins import NodeUnschedulable, TaintToleration
from volsched.scheduling.rules.status import Code

UNTOLERATED = "node(s) had untolerated taint(s)"


def tainted(name: str, *effects: str, key: str = "gpu") -> Node:
    taints = [{"key": key, "value": "yes", "effect": effect} for effect in effects]
    return node(name, spec={"taints": taints})


@pytest.mark.parametrize(
    ("toleration", "effect", "tolerated"),
    [
        (None, "NoSchedule", False),
        (None, "NoExecute", False),
        (None, "PreferNoSchedule", True),
        ({"key": "gpu", "operator": "Exists"}, "NoSchedule", True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, "NoSchedule", False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, "NoSchedule", True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, "NoSchedule", True),
        ({"key": "gpu", "value": "yes"}, "NoSchedule", True),
        ({"key": "gpu", "value": "no"}, "NoSchedule", False),
        ({"key": "cpu", "operator": "Exists"}, "NoSchedule", False),
        ({"operator": "Exists"}, "NoExecute", True),
        ({"key": "gpu", "operator": "Bogus", "value": "yes"}, "NoSchedule", False),
    ],
)
def test_a_toleration_holds_for_what_it_names(
    toleration: dict[str, str] | None, effect: str, tolerated: bool
) -> None:
    wanting = pod(tolerations=[toleration] if toleration else [])
    assert refusals(TaintToleration(), wanting, [tainted("n", effect)]) == (
        {} if tolerated else {"n": (UNTOLERATED,)}
    )


def test_one_taint_that_is_not_tolerated_is_enough_and_no_eviction_helps() -> None:
    both = node(spec={"taints": [{"key": k, "value": "yes", "effect": "NoSchedule"} for k in ("spot", "gpu")]})
    wanting = pod(tolerations=[{"key": "spot", "operator": "Exists"}])
    (status,) = statuses(TaintToleration(), wanting, [both]).values()
    assert (status.code, status.reasons) == (Code.UNRESOLVABLE, (UNTOLERATED,))


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ([], {"none": 100, "one": 50, "two": 0}),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], {"none": 100, "one": 50, "two": 0}),
        ([{"key": "gpu", "operator": "Exists"}], {"none": 0, "one": 0, "two": 0}),
    ],
)
def test_the_fewer_unwelcoming_taints_the_better(toleration: list[Any], expected: dict[str, int]) -> None:
    prefer = "PreferNoSchedule"
    nodes = [node("none"), tainted("one", prefer), tainted("two", prefer, prefer)]
    assert scores(TaintToleration(), pod(tolerations=toleration), nodes) == expected


@pytest.mark.parametrize(
    ("tolerations", "refused"),
    [
        ([], ["cordoned"]),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], []),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}], ["cordoned"]),
    ],
)
def test_a_cordoned_node_takes_only_who_tolerates_it(tolerations: list[Any], refused: list[str]) -> None:
    nodes = [node("open"), node("cordoned", spec={"unschedulable": True})]
    found = refusals(NodeUnschedulable(), pod(tolerations=tolerations), nodes)
    assert found == dict.fromkeys(refused, ("node(s) were unschedulable",))
