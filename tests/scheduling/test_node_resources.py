"""NodeResourcesFit: what is requested, what is left, what is best."""

from typing import Any

import pytest

from tests.scheduling.plugin_verdicts import refusals, scores, statuses
from tests.support.objects import node, pod
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.plugins.node_resources import NodeResourcesFit, pod_requests, scored_requests
from volsched.scheduling.rules.status import Code

MIB = 2**20


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    given = {name.replace("__", "/").replace("_", "-"): amount for name, amount in requests.items()}
    return {"name": "c", "resources": {"requests": given}, "restartPolicy": restart}


def sized(name: str = "n", **allocatable: str) -> Node:
    given = {key.replace("__", "/").replace("_", "-"): amount for key, amount in allocatable.items()}
    return node(name, status={"allocatable": given})


def asking(name: str = "app", *, on: str = "", phase: str = "Pending", **requests: str) -> Pod:
    return pod(name=name, on=on, phase=phase, containers=[container(**requests)])


@pytest.mark.parametrize(
    ("spec", "requested"),
    [
        ({}, {}),
        (
            {"containers": [container(cpu="500m"), container(cpu="250m", memory="1Ki")]},
            {"cpu": 750, "memory": 1024},
        ),
        # Init containers run one after the other, before the others.
        (
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="3"), container(cpu="2")]},
            {"cpu": 3000},
        ),
        ({"containers": [container(cpu="4")], "initContainers": [container(cpu="3")]}, {"cpu": 4000}),
        # A restartable one stays: it runs beside the containers, and beside those that start after it.
        ({"containers": [container(cpu="1")], "initContainers": [container("Always", cpu="2")]}, {"cpu": 3000}),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("Always", cpu="1"), container(cpu="5"), container("Always", cpu="1")],
            },
            {"cpu": 6000},
        ),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="5"), container("Always", cpu="1")],
            },
            {"cpu": 5000},
        ),
        (
            {"containers": [container(cpu="1")], "overhead": {"cpu": "10m", "memory": "1Ki"}},
            {"cpu": 1010, "memory": 1024},
        ),
        ({"containers": [container(cpu="100u")]}, {"cpu": 1}),
        (
            {"containers": [container(example_com__gpu="2", hugepages_2Mi="4Mi")]},
            {"example-com/gpu": 2, "hugepages-2Mi": 4 * MIB},
        ),
        ({"containers": [container(cpu="0", storage="1Gi", ephemeral_storage="5")]}, {"ephemeral-storage": 5}),
    ],
)
def test_what_a_pod_requests(spec: dict[str, Any], requested: dict[str, int]) -> None:
    assert pod_requests(pod(**spec)) == requested


@pytest.mark.parametrize(
    ("containers", "scored"),
    [
        ([], (0, 0)),
        ([container()], (100, 200 * MIB)),
        ([container(cpu="1"), container(memory="1Mi")], (1100, 201 * MIB)),
        ([container(cpu="0", memory="0")], (0, 0)),
    ],
)
def test_a_container_that_does_not_say_counts_for_something_when_nodes_are_scored(
    containers: list[Any], scored: tuple[int, int]
) -> None:
    assert scored_requests(pod(containers=containers)) == scored


@pytest.mark.parametrize(
    ("requests", "allocatable", "reasons"),
    [
        ({"cpu": "1"}, {"cpu": "2"}, ()),
        ({"cpu": "1001m"}, {"cpu": "2"}, ("Insufficient cpu",)),
        (
            {"cpu": "2", "memory": "2Gi"},
            {"cpu": "2", "memory": "1Gi"},
            ("Insufficient cpu", "Insufficient memory"),
        ),
        ({"memory": "1"}, {"cpu": "2"}, ("Insufficient memory",)),
        ({"ephemeral_storage": "1"}, {"cpu": "2"}, ("Insufficient ephemeral-storage",)),
        ({"example_com__gpu": "1"}, {"cpu": "2"}, ("Insufficient example-com/gpu",)),
        ({"example_com__gpu": "1"}, {"cpu": "2", "example_com__gpu": "1"}, ()),
        ({}, {"cpu": "0", "pods": "1"}, ("Too many pods",)),
        ({}, {"cpu": "0", "pods": "2"}, ()),
        ({"cpu": "2"}, {"cpu": "2", "pods": "1"}, ("Too many pods", "Insufficient cpu")),
        # A node that does not say what it has is not judged by it.
        ({"cpu": "99"}, {}, ()),
        ({"cpu": "99"}, {"attachable_volumes_csi_x": "3"}, ()),
    ],
)
def test_what_is_requested_must_be_left(
    requests: dict[str, str], allocatable: dict[str, str], reasons: tuple[str, ...]
) -> None:
    there = [sized(**allocatable), asking("other", on="n", cpu="1")]
    assert refusals(NodeResourcesFit(), asking(**requests), there) == ({"n": reasons} if reasons else {})


@pytest.mark.parametrize(("cpu", "code"), [("2", Code.UNSCHEDULABLE), ("3", Code.UNRESOLVABLE)])
def test_an_eviction_helps_unless_the_whole_node_is_too_small(cpu: str, code: Code) -> None:
    there = [sized(cpu="2"), asking("other", on="n", cpu="1")]
    assert statuses(NodeResourcesFit(), asking(cpu=cpu), there)["n"].code is code


@pytest.mark.parametrize(
    "other",
    [
        asking("done", on="n", phase="Succeeded", cpu="2"),
        asking("waiting", cpu="2"),
        asking("elsewhere", on="m", cpu="2"),
        asking("app", on="n", cpu="2"),
    ],
)
def test_pods_that_have_ended_or_are_not_there_take_nothing(other: Pod) -> None:
    """Nor does the pod itself, where it was placed before."""
    assert refusals(NodeResourcesFit(), asking(cpu="2"), [sized(cpu="2"), other]) == {}


def test_the_node_with_more_left_is_better() -> None:
    there = [
        sized("large", cpu="4", memory="4000Mi"), sized("small", cpu="2", memory="1000Mi"), node("silent"),
        sized("full", cpu="1", memory="100Mi"), sized("odd", cpu="2"),
        asking("other", on="large", cpu="1", memory="1000Mi"),
    ]  # fmt: skip
    found = scores(NodeResourcesFit(), asking(cpu="500m", memory="500Mi"), there)
    assert found == {"large": 62, "small": 62, "silent": 0, "full": 25, "odd": 75}
