"""The extender, asked by a client that keeps to kube-scheduler's rules."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from tests.api.kube_scheduler import Config, ExtenderError, Scheduler, name_of
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import Served, served
from volsched.api.extender.decider import ExtenderDecider
from volsched.api.extender.messages import Assignment
from volsched.api.extender.service import Extender
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.runtime.writer import OverloadedError
from volsched.scheduling.rules.configuration import DEFAULT
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND, NODE_AFFINITY_MISMATCH

Manifest = dict[str, Any]
OTHERS = "kube-scheduler"
"""The schedulerName of pods that volsched's own scheduler leaves alone."""
DEEP = b'{"Pod":{"metadata":{"name":"p"},"spec":' + b"[" * 900 + b"]" * 900 + b'},"NodeNames":["n"]}'


def foreign(name: str, *claims: str) -> Manifest:
    made = pod(name, *claims)
    made["spec"]["schedulerName"] = OTHERS
    return made


def config(api: Served, *, cached: bool = True, **more: Any) -> Config:
    verbs = {f"{it}_verb": it for it in ("filter", "prioritize", "bind", "preempt")}
    return Config(
        url_prefix=f"{api.url}/extender/",
        weight=1,
        node_cache_capable=cached,
        http_timeout=HANG_SECONDS,
        **verbs | more,
    )


@pytest.fixture(params=[True, False], ids=["names", "whole nodes"])
def cached(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def disks(api: Served) -> Served:
    """n1 has a large disk, n2 one that is just right, n3 none; n4 is cordoned."""
    api.create(LOCAL, *(node(f"n{it}") for it in range(1, 5)))
    api.create(volume("large", "100Gi", "n1"), volume("close", "5Gi", "n2"), volume("far", "5Gi", "n4"))
    api.http.patch(
        "/api/v1/nodes/n4",
        headers={"content-type": "application/merge-patch+json"},
        json={"spec": {"unschedulable": True}},
    )
    make_available(api, "large", "close", "far")
    api.create(claim("data", "5Gi"))
    return api


def make_available(api: Served, *volumes: str) -> None:
    """What the controller would do, which does not run beside an API alone."""
    for name in volumes:
        api.http.patch(
            f"/api/v1/persistentvolumes/{name}/status",
            headers={"content-type": "application/merge-patch+json"},
            json={"status": {"phase": "Available"}},
        )


def nodes(api: Served) -> list[Manifest]:
    return list(api.http.get("/api/v1/nodes").json()["items"])


def test_filter_and_prioritize_say_of_every_node_what_the_rules_say(disks: Served, cached: bool) -> None:
    (wanting,) = disks.create(foreign("p", "data"))
    scheduler = Scheduler([config(disks, cached=cached)])
    found = scheduler.filter(wanting, [*nodes(disks), node("elsewhere")])
    assert [*map(name_of, found.nodes)] == ["n1", "n2"]
    assert found.failed == {}
    assert found.unresolvable == {
        "n3": NO_VOLUME_TO_BIND,
        "n4": "node(s) were unschedulable",
        "elsewhere": 'volsched knows no node "elsewhere"',
    }
    scores = scheduler.prioritize(wanting, found.nodes)
    assert 0 <= scores["n1"] < scores["n2"] <= 100


def test_field_names_are_exactly_those_of_go(disks: Served) -> None:
    (wanting,) = disks.create(foreign("p", "data"))
    names = {"pod": wanting, "nodeNames": ["n2", "n3"], "NODES": None}
    assert disks.http.post("/extender/filter", json=names).json() == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n3": NO_VOLUME_TO_BIND},
        "Error": "",
    }
    whole = {"Pod": wanting, "Nodes": {"metadata": {}, "items": [node("n2"), node("n3")]}, "NodeNames": None}
    answer = disks.http.post("/extender/filter", json=whole).json()
    assert (answer["Nodes"], answer["NodeNames"]) == ({"metadata": {}, "items": [node("n2")]}, None)
    (priority,) = disks.http.post("/extender/prioritize", json=whole | {"Nodes": {"items": [node("n2")]}}).json()
    assert (priority["Host"], set(priority), type(priority["Score"])) == ("n2", {"Host", "Score"}, int)
    victims = {"n2": {"Pods": [{"UID": "u"}], "NumPDBViolations": 3}}
    left = disks.http.post("/extender/preempt", json={"Pod": wanting, "NodeNameToMetaVictims": victims}).json()
    assert left == {"NodeNameToMetaVictims": victims}


def test_a_pod_that_is_refused_as_such_is_refused_by_every_node(disks: Served, cached: bool) -> None:
    scheduler = Scheduler([config(disks, cached=cached)])
    found = scheduler.filter(foreign("p", "nowhere"), nodes(disks))
    assert found.nodes == ()
    assert set(found.unresolvable.values()) == {'persistentvolumeclaim "nowhere" not found'}
    assert set(found.unresolvable) == {"n1", "n2", "n3", "n4"}


def test_what_eviction_can_mend_is_reported_apart(api: Served, cached: bool) -> None:
    api.create(node("n1") | {"status": {"allocatable": {"cpu": "1", "pods": "9"}}}, node("n2"))
    api.http.patch(
        "/api/v1/nodes/n1/status",
        headers={"content-type": "application/merge-patch+json"},
        json={"status": {"allocatable": {"cpu": "1", "pods": "9"}}},
    )
    api.http.patch(
        "/api/v1/nodes/n2",
        headers={"content-type": "application/merge-patch+json"},
        json={"spec": {"unschedulable": True}},
    )
    big = foreign("big")
    big["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    (victim,) = api.create(big | {"metadata": {"name": "victim", "namespace": "default"}})
    api.http.post(
        "/api/v1/namespaces/default/pods/victim/binding",
        json={"metadata": {"name": "victim"}, "target": {"name": "n1"}},
    )
    (wanting,) = api.create(big)
    scheduler = Scheduler([config(api, cached=cached)])
    found = scheduler.filter(wanting, nodes(api))
    assert (found.failed, found.unresolvable) == (
        {"n1": "Insufficient cpu"},
        {"n2": "node(s) were unschedulable"},
    )
    assert scheduler.preempt(wanting, {"n1": [victim], "n2": [victim]}) == {"n1": ["victim"]}


@pytest.fixture
def whole(sqlite: Database) -> Iterator[Served]:
    with served(sqlite, system=True) as running:
        running.create(LOCAL, *(node(f"n{it}") for it in range(1, 4)))
        running.create(volume("large", "100Gi", "n1"), volume("close", "5Gi", "n2"), claim("data", "5Gi"))
        for name in ("large", "close"):
            wait_until(lambda name=name: running.core.read_persistent_volume(name).status.phase == "Available")  # type: ignore[misc]
        yield running


def test_a_pod_is_scheduled_and_bound_with_its_volumes(whole: Served, cached: bool) -> None:
    (wanting,) = whole.create(foreign("p", "data"))
    scheduler = Scheduler([config(whole, cached=cached)])
    assert scheduler.schedule(wanting, nodes(whole)) == "n2"
    bound = whole.http.get("/api/v1/namespaces/default/pods/p").json()
    assert bound["spec"]["nodeName"] == "n2"
    held = whole.http.get("/api/v1/namespaces/default/persistentvolumeclaims/data").json()
    assert (held["spec"]["volumeName"], held["status"]["phase"]) == ("close", "Bound")
    # Asked again, by whom the answer did not reach: done is done, and nowhere else.
    scheduler.bind(wanting, "n2")
    with pytest.raises(ExtenderError, match='is on node "n2" already'):
        scheduler.bind(wanting, "n1")


def test_calls_at_the_same_time_wait_for_one_binding(whole: Served) -> None:
    (wanting,) = whole.create(foreign("p", "data"))
    scheduler = Scheduler([config(whole)])
    outcomes: list[object] = []

    def bind() -> None:
        outcomes.append(scheduler.bind(wanting, "n1"))

    threads = [threading.Thread(target=bind) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert outcomes == [True] * 4
    with whole.database.read() as connection:
        assert connection.exec_driver_sql("select count(*) from bindings").scalar_one() == 1


def test_bind_says_why_it_cannot(whole: Served) -> None:
    (wanting,) = whole.create(foreign("p", "data"))
    scheduler = Scheduler([config(whole)])
    for node_name, told in (("n3", NO_VOLUME_TO_BIND), ("n9", 'knows no node "n9"')):
        with pytest.raises(ExtenderError, match=told.replace("(", r"\(").replace(")", r"\)")):
            scheduler.bind(wanting, node_name)
    with pytest.raises(ExtenderError, match='pod "default/gone" not found'):
        scheduler.bind(foreign("gone"), "n1")
    other = wanting | {"metadata": wanting["metadata"] | {"uid": "another"}}
    with pytest.raises(ExtenderError, match="it is another pod"):
        scheduler.bind(other, "n1")
    assert whole.http.get("/api/v1/namespaces/default/pods/p").json()["spec"].get("nodeName") is None
    # Two pods and one disk: the second is told, and nothing of the first is taken from it.
    scheduler.bind(wanting, "n2")
    whole.create(claim("more", "5Gi"))
    (second,) = whole.create(foreign("q", "more"))
    with pytest.raises(ExtenderError, match="didn't find available persistent volumes"):
        scheduler.bind(second, "n2")


def test_a_pod_that_lives_elsewhere_is_never_said_to_be_bound(whole: Served) -> None:
    """A dump of a cluster that was imported keeps its uids; the scheduler of that cluster has other versions."""
    (wanting,) = whole.create(foreign("p", "data"))
    path = "/api/v1/namespaces/default/pods/p"
    scheduler, nodes = Scheduler([config(whole)]), whole.http.get("/api/v1/nodes").json()["items"]
    elsewhere = wanting | {"metadata": wanting["metadata"] | {"resourceVersion": "884213"}}
    assert [name_of(it) for it in scheduler.filter(elsewhere, nodes).nodes]
    with pytest.raises(ExtenderError, match="lives elsewhere: this API never had it at resourceVersion 884213"):
        scheduler.bind(elsewhere, "n2")
    nameless = wanting | {"metadata": wanting["metadata"] | {"uid": ""}}
    with pytest.raises(ExtenderError, match="PodUID is missing"):
        scheduler.bind(nameless, "n2")
    assert whole.http.get(path).json()["spec"].get("nodeName") is None
    # One that has not heard yet of our pod's last change still means ours.
    merge = {"content-type": "application/merge-patch+json"}
    whole.http.patch(path, headers=merge, json={"metadata": {"labels": {"a": "b"}}})
    scheduler.filter(wanting, nodes)
    scheduler.bind(wanting, "n2")
    assert whole.http.get(path).json()["spec"]["nodeName"] == "n2"
    scheduler.filter(elsewhere, nodes)
    with pytest.raises(ExtenderError, match="lives elsewhere"):
        scheduler.bind(elsewhere, "n2")


def test_a_binding_that_is_rolled_back_is_reported_with_its_reason(whole: Served) -> None:
    slow = LOCAL | {"metadata": {"name": "slow"}, "provisioner": "example.com/nobody"}
    whole.create(slow, claim("late", "5Gi", "slow"))
    wanting = foreign("p", "late")
    wanting["metadata"]["annotations"] = {"volsched.io/bind-timeout-seconds": "1"}
    (made,) = whole.create(wanting)
    with pytest.raises(ExtenderError, match=r"was rolled back: .*(deadline|time)"):
        Scheduler([config(whole)]).bind(made, "n1")


def test_a_bound_claim_keeps_its_pods_on_its_node(whole: Served) -> None:
    (first,) = whole.create(foreign("p", "data"))
    scheduler = Scheduler([config(whole)])
    scheduler.bind(first, "n1")
    (second,) = whole.create(foreign("q", "data"))
    found = scheduler.filter(second, nodes(whole))
    assert [*map(name_of, found.nodes)] == ["n1"]
    assert set(found.unresolvable.values()) == {NODE_AFFINITY_MISMATCH}


def test_a_binding_that_fails_is_reported_to_whoever_waits_for_it(api: Served) -> None:
    """Nobody carries effects out here: the pod is deleted while its binding is on its way."""
    api.create(LOCAL, node("n1"), volume("v", "5Gi", "n1"), claim("data", "5Gi"))
    make_available(api, "v")
    (wanting,) = api.create(foreign("p", "data"))
    scheduler = Scheduler([config(api)])
    told: list[str] = []

    def bind() -> None:
        try:
            scheduler.bind(wanting, "n1")
        except ExtenderError as error:
            told.append(str(error))

    waiting = threading.Thread(target=bind)
    waiting.start()
    with api.http.stream("GET", "/api/v1/pods?watch=true") as answer:
        next(answer.iter_lines())
        while not _planned(api):
            assert waiting.is_alive(), told
        assert api.http.delete("/api/v1/namespaces/default/pods/p").status_code == 200
    waiting.join(HANG_SECONDS)
    assert told == ['pod "default/p" not found; bind acts on pods of this API']


def test_a_client_that_goes_away_does_not_make_others_wait_for_the_log_to_be_read_anew(api: Served) -> None:
    *_, made = api.create(LOCAL, node("n1"), volume("v", "5Gi", "n1"), claim("data", "5Gi"), foreign("p", "data"))
    make_available(api, "v")
    httpx.get(f"{api.url}/extender/healthz", timeout=HANG_SECONDS)
    (extender,) = (it.endpoint for it in api.server._api.app.routes if isinstance(it, Route) and "verb" in it.path)
    assert isinstance(extender, Extender)
    decider = extender._decider
    asked = json.dumps({"PodName": "p", "PodUID": made["metadata"]["uid"], "Node": "n1"})
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as impatient:
        head = f"POST /extender/bind HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(asked)}\r\n"
        impatient.sendall(f"{head}Content-Type: application/json\r\n\r\n{asked}".encode())
        # Nobody carries effects out here, so the answer would never come.
        wait_until(lambda: _planned(api))
    given_up = 'volsched_http_requests_total{code="503",resource="extender",verb="bind"}'
    wait_until(lambda: given_up in api.http.get("/metrics").text)
    assert decider is not None
    assert extender._decider is decider


def _planned(api: Served) -> bool:
    with api.database.read() as connection:
        return bool(connection.exec_driver_sql("select count(*) from bindings").scalar_one())


@pytest.mark.parametrize(
    ("method", "path", "content", "code"),
    [
        ("POST", "filter", b"{", 400),
        ("POST", "filter", b"[]", 400),
        ("POST", "filter", b"{}", 400),
        ("POST", "filter", b'{"Pod":{"metadata":{"name":"p"}}}', 400),
        ("POST", "filter", b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":[7]}', 400),
        ("POST", "filter", b'{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[{}]}}', 400),
        ("POST", "filter", b'{"Pod":{"metadata":{"name":"p"},"spec":{"volumes":7}},"NodeNames":["n"]}', 400),
        ("POST", "filter", DEEP, 400),
        ("POST", "prioritize", b'{"Pod":null,"NodeNames":[]}', 400),
        ("POST", "bind", b'{"PodName":"p"}', 400),
        ("POST", "bind", b'{"PodName":7,"Node":"n"}', 400),
        ("POST", "preempt", b'{"Pod":{"metadata":{"name":"p"}}}', 400),
        ("POST", "preempt", b'{"Pod":{"metadata":{"name":"p"}},"NodeNameToMetaVictims":{"n":{"Pods":[{}]}}}', 400),
        ("GET", "filter", b"", 405),
        ("POST", "healthz", b"", 404),
        ("POST", "burn", b"{}", 404),
    ],
)
def test_what_cannot_be_read_is_a_call_that_failed(
    shared: Served, method: str, path: str, content: bytes, code: int
) -> None:
    answer = shared.http.request(method, f"/extender/{path}", content=content)
    assert (answer.status_code, answer.json()["kind"], answer.json()["code"]) == (code, "Status", code)


def test_other_forms_are_refused(shared: Served) -> None:
    headers = {"content-type": "application/vnd.kubernetes.protobuf"}
    assert shared.http.post("/extender/filter", headers=headers, content=b"k8s\0").status_code == 415


def test_health_says_when_the_world_is_read(api: Served) -> None:
    answer = httpx.get(f"{api.url}/extender/healthz", timeout=HANG_SECONDS)
    assert (answer.status_code, answer.text) == (200, "ok")


def test_what_could_not_be_written_is_not_taken_for_planned(sqlite: Database) -> None:
    world = Stepped(sqlite, [LOCAL, node("n1"), node("n2"), volume("v", "5Gi", "n1"), claim("data", "5Gi")])
    world.create(foreign("p", "data"))
    world.settle()
    ids = iter(("first", "second"))

    def refuse(_: Command) -> object:
        raise OverloadedError("too many writes are waiting")

    decider = ExtenderDecider(sqlite, DEFAULT, lambda: next(ids), refuse)
    uid = (world.cluster.get("Pod", "default/p") or {})["metadata"]["uid"]
    asked = Assignment("default/p", uid, "n1")
    with pytest.raises(OverloadedError):
        decider.bind(asked, actor="api/test", now=world.now)
    assert decider.picture.index.snapshot.pods["default/p"].node_name == ""
