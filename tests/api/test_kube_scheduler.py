"""The tests' own kube-scheduler keeps to the rules: or else what it says of our extender would mean little."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.kube_scheduler import Config, ExtenderError, Scheduler, name_of, validate
from tests.support.clusters import node, pod

NODES = [node("n1"), node("n2"), node("n3")]
Answer = Callable[[httpx.Request], httpx.Response]


def scheduler(answer: Answer, *configs: Config) -> Scheduler:
    return Scheduler(configs, httpx.Client(transport=httpx.MockTransport(answer)))


def one(answer: Any, *, code: int = 200, **config: Any) -> Scheduler:
    settings = {"filter_verb": "filter", "node_cache_capable": True} | config
    content = answer if isinstance(answer, str) else json.dumps(answer)
    return scheduler(lambda _: httpx.Response(code, text=content), Config(url_prefix="http://one/", **settings))


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ({"NodeNames": ["n1"], "Error": "no luck"}, 200, "no luck"),
        ("{", 200, ""),
        ({"NodeNames": ["n1"]}, 201, "failed filter with extender at URL http://one/filter, code 201"),
        ({"NodeNames": ["n9"]}, 200, 'claims a filtered node "n9" which is not found in the input node list'),
    ],
)
def test_a_filter_that_fails_ends_the_cycle_unless_it_may_be_ignored(answer: Any, code: int, told: str) -> None:
    with pytest.raises(ExtenderError) as raised:
        one(answer, code=code).filter(pod("p"), NODES)
    assert told in str(raised.value)
    assert len(one(answer, code=code, ignorable=True).filter(pod("p"), NODES).nodes) == 3


@pytest.mark.parametrize(
    ("answer", "cached", "left"),
    [
        ({"nodenames": ["n2"]}, True, ["n2"]),
        ({"NodeNames": None, "Nodes": None}, True, []),
        ({"NodeNames": None, "Nodes": {"items": [node("n8")]}}, True, ["n8"]),
        ({"NodeNames": ["n1"], "Nodes": {"items": [node("n2")]}}, False, ["n2"]),
        ({"NodeNames": ["n1"]}, False, []),
    ],
)
def test_which_nodes_are_left(answer: Any, cached: bool, left: list[str]) -> None:
    assert [*map(name_of, one(answer, node_cache_capable=cached).filter(pod("p"), NODES).nodes)] == left


def test_unresolvable_wins_and_extenders_see_what_the_one_before_left() -> None:
    asked: list[tuple[str, list[str]]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        names = json.loads(request.content)["NodeNames"]
        asked.append((request.url.host, names))
        why = {names[0]: "full"}
        return httpx.Response(
            200, json={"NodeNames": names[1:], "FailedNodes": why, "FailedAndUnresolvableNodes": why}
        )

    hosts = ("a", "b", "c", "d")
    configs = [Config(url_prefix=f"http://{it}", filter_verb="f", node_cache_capable=True) for it in hosts]
    found = scheduler(answer, *configs).filter(pod("p"), NODES)
    assert (dict(found.failed), set(found.unresolvable)) == ({}, {"n1", "n2", "n3"})
    assert asked == [("a", ["n1", "n2", "n3"]), ("b", ["n2", "n3"]), ("c", ["n3"])]


def test_scores_are_weighed_and_failures_say_nothing() -> None:
    answer = [{"Host": "n1", "Score": 7}]
    good = Config(url_prefix="http://one", prioritize_verb="p", weight=2, node_cache_capable=True)
    assert one(answer, prioritize_verb="p", weight=2).prioritize(pod("p"), NODES) == {"n1": 140, "n2": 0, "n3": 0}
    broken = scheduler(lambda _: httpx.Response(500), good)
    assert broken.prioritize(pod("p"), NODES) == {"n1": 0, "n2": 0, "n3": 0}


def test_bind_errors_go_to_the_next_binder_only_if_they_may_be_ignored() -> None:
    with pytest.raises(ExtenderError, match="taken"):
        one({"Error": "taken"}, bind_verb="bind").bind(pod("p"), "n1")
    assert not one({"Error": "taken"}, bind_verb="bind", ignorable=True).bind(pod("p"), "n1")
    assert not one({"Error": ""}).bind(pod("p"), "n1")


def test_an_extender_is_asked_only_for_pods_with_its_resources() -> None:
    managed = one({"Error": "asked"}, managed_resources=("example.com/disk",))
    assert len(managed.filter(pod("p"), NODES).nodes) == 3
    wanting = pod("p")
    wanting["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": {"example.com/disk": "1"}}}]
    with pytest.raises(ExtenderError, match="asked"):
        managed.filter(wanting, NODES)


def test_a_node_that_comes_back_without_victims_is_an_error_or_dropped() -> None:
    victim = pod("v") | {"metadata": {"name": "v", "uid": "u"}}
    answer = {"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}}
    with pytest.raises(ExtenderError, match="at least one victim"):
        one(answer, preempt_verb="preempt").preempt(pod("p"), {"n1": [victim]})
    assert one(answer, preempt_verb="preempt", ignorable=True).preempt(pod("p"), {"n1": [victim]}) == {}


def test_configurations_that_the_scheduler_refuses() -> None:
    wrong = validate(
        [
            Config(url_prefix="http://a", prioritize_verb="p", bind_verb="b", managed_resources=("x.io/a",)),
            Config(url_prefix="http://b", bind_verb="b", managed_resources=("x.io/a", "cpu")),
        ]
    )
    assert len(wrong) == 4
