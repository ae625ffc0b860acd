"""Large bodies and large objects: worked on where nobody waits for them, and no larger than all readers take."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.call_counts import ComparedText, calls_of
from tests.support.clusters import node
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served
from volsched.api.access.access_reviews import ACCESS
from volsched.api.kubernetes.bodies import MOST_BYTES, SMALL_BYTES
from volsched.api.kubernetes.negotiation import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, YAML
from volsched.api.kubernetes.resources import RequestTarget, parse_path
from volsched.api.services import WRITE_TRIES, Services
from volsched.api.watch_cache import Fan
from volsched.kube.patches import PatchError, json_patched, merged
from volsched.kube.problems import DEPTH_MAX, ITEMS_MAX, OBJECT_BYTES_MAX
from volsched.kube.strategic_merge import MOST_REPEATS, RepeatedError, strategic_merged
from volsched.log.commands import ConflictError
from volsched.log.database import Database
from volsched.objects import door
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import running
from volsched.runtime.writer import Writer

NODES = "/api/v1/nodes"
Manifest = dict[str, Any]


@contextmanager
def services_of(database: Database) -> Iterator[Services]:
    writer = Writer(database)
    with running(writer, clock=system_clock):
        yield Services(database, writer, Fan(), system_clock, "test")


def named(name: str) -> RequestTarget:
    target = parse_path(f"{NODES}/{name}")
    assert isinstance(target, RequestTarget)
    return target


async def make(services: Services, name: str) -> None:
    await services.write(door.create("Node", node(name), services.author(), uid=services.new_uid()))


def labelled(key: str) -> Any:
    def change(manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        labels = {**metadata.get("labels", {}), key: "yes"}
        kept = {field: value for field, value in metadata.items() if field != "resourceVersion"}
        return {**manifest, "metadata": {**kept, "labels": labels}}

    return change


def test_nobody_waits_for_a_patch_that_takes_long(sqlite: Database) -> None:
    async def play(services: Services) -> None:
        await make(services, "a")
        await make(services, "b")
        begun, goes_on = threading.Event(), threading.Event()

        def slow(manifest: Manifest) -> Manifest:
            begun.set()
            assert goes_on.wait(HANG_SECONDS)
            return dict(labelled("slow")(manifest))

        who = services.author()
        held = asyncio.create_task(services.write(door.patch("Node", "a", slow, who), heavy=True))
        await asyncio.to_thread(begun.wait, HANG_SECONDS)
        # Another object, and then the very same one: both are written while the patch is still worked out.
        await services.write(door.patch("Node", "b", labelled("quick"), who))
        await services.write(door.patch("Node", "a", labelled("quick"), who))
        assert not held.done()
        goes_on.set()
        labels = (await held).manifest["metadata"]["labels"]
        assert {"slow", "quick"} <= labels.keys()

    with services_of(sqlite) as services:
        asyncio.run(play(services))


def test_an_object_that_never_stays_the_same_is_a_conflict(sqlite: Database) -> None:
    async def play(services: Services) -> None:
        await make(services, "a")
        loop, tries = asyncio.get_running_loop(), 0

        def overtaken(manifest: Manifest) -> Manifest:
            nonlocal tries
            tries += 1
            other = door.patch("Node", "a", labelled(f"other-{tries}"), services.author())
            asyncio.run_coroutine_threadsafe(services.write(other), loop).result(HANG_SECONDS)
            return dict(labelled("mine")(manifest))

        with pytest.raises(ConflictError):
            await services.write(door.patch("Node", "a", overtaken, services.author()), heavy=True)
        assert tries == WRITE_TRIES

    with services_of(sqlite) as services:
        asyncio.run(play(services))


def test_a_small_patch_of_a_large_object_is_not_worked_out_under_the_lock(sqlite: Database) -> None:
    """The writer's own thread is the one that holds it."""

    async def play(services: Services) -> None:
        await make(services, "a")
        worked_in: list[str] = []

        def large(manifest: Manifest) -> Manifest:
            labels = {f"example.com/l{number}": "x" for number in range(3_000)}
            return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}

        def noted(manifest: Manifest) -> Manifest:
            worked_in.append(threading.current_thread().name)
            return dict(labelled("mine")(manifest))

        await services.write(door.patch("Node", "a", noted, services.author()))
        writer = worked_in.pop()
        await services.write(door.patch("Node", "a", large, services.author()))
        await services.write(door.patch("Node", "a", noted, services.author()))
        assert len(worked_in) == 1
        assert writer not in worked_in

    with services_of(sqlite) as services:
        asyncio.run(play(services))


@pytest.mark.parametrize(
    "patch_of",
    [
        lambda names: {"$setElementOrder/finalizers": names[::-1], "finalizers": names[::-1]},
        lambda names: {"$deleteFromPrimitiveList/finalizers": names[::-1]},
        lambda names: {"ownerReferences": [{"uid": name, "name": "x"} for name in names[::-1]]},
        lambda names: {"ownerReferences": [{"uid": name, "$patch": "delete"} for name in names[::-1]]},
        lambda names: {"$retainKeys": names, "finalizers": None},
    ],
)
def test_what_a_strategic_patch_costs_grows_with_its_length_and_no_faster(patch_of: Any) -> None:
    count = 400
    held = [ComparedText(f"example.com/f{number}") for number in range(count)]
    given = [ComparedText(name) for name in held]
    before = {"finalizers": held, "ownerReferences": [{"uid": name} for name in held]}
    ComparedText.compared = 0
    strategic_merged(before, patch_of(given), "V1ObjectMeta")
    assert ComparedText.compared <= 20 * count


def test_a_strategic_patch_names_an_item_again_a_few_times_only() -> None:
    """Each time everything that the item holds is merged again."""
    env = [{"name": f"x{number}"} for number in range(20)]
    before = {"containers": [{"name": "main", "env": env}]}
    patch = {"containers": [{"name": "main", "env": [{"name": "x0", "value": "1"}]}] * MOST_REPEATS}
    after = strategic_merged(before, patch, "V1PodSpec")
    assert after["containers"][0]["env"][0] == {"name": "x0", "value": "1"}
    patch["containers"].append({"name": "main", "image": "y"})
    with pytest.raises(RepeatedError, match="name main is named more than 16 times; name it once"):
        strategic_merged(before, patch, "V1PodSpec")


def test_a_merge_patch_that_removes_what_is_not_there_costs_what_it_holds() -> None:
    """Each level of a removed field was looked through twice, and each of those twice again."""

    def removing(levels: int) -> Manifest:
        patch: Any = None
        for _ in range(levels):
            patch = {"a": patch}
        return {"kept": 1, "x": patch}

    def cost(levels: int) -> int:
        return calls_of(lambda: merged({}, removing(levels)))

    assert cost(16) <= 3 * cost(8)
    assert merged({}, removing(3)) == {"kept": 1, "x": {"a": {"a": {}}}}


def test_a_strategic_patch_deletes_and_adds_again_in_the_order_it_says() -> None:
    before = {"ownerReferences": [{"uid": "a", "name": "1"}, {"uid": "b"}, {"uid": "a", "name": "2"}]}
    patch = {
        "ownerReferences": [
            {"uid": "a", "$patch": "delete"},
            {"uid": "a", "kind": "Pod"},
            {"uid": "b", "$patch": "delete"},
            {"uid": "b", "name": "new"},
        ]
    }
    after = strategic_merged(before, patch, "V1ObjectMeta")
    assert after == {"ownerReferences": [{"uid": "a", "name": "2", "kind": "Pod"}, {"uid": "b", "name": "new"}]}
    assert before["ownerReferences"][0] == {"uid": "a", "name": "1"}


def test_a_strategic_patch_leaves_the_order_of_what_is_stored_alone() -> None:
    held = ["a", "b"]
    patch = {"$setElementOrder/finalizers": ["b", "a"]}
    assert strategic_merged({"finalizers": held}, patch, "V1ObjectMeta") == {"finalizers": ["b", "a"]}
    assert held == ["a", "b"]


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/x" + "/a" * 40, "value": nested(40)}],
        [{"op": "copy", "from": "/x", "path": "/x/a/a/b"}] * 12,
        [
            step
            for number in range(30)
            for step in (
                {"op": "add", "path": "/y", "value": nested(20)},
                {"op": "move", "from": "/x", "path": "/y" + "/a" * 18 + f"/{number}"},
                {"op": "move", "from": "/y", "path": "/x"},
            )
        ],
    ],
)
def test_a_json_patch_cannot_make_what_is_too_deep_to_be_read(operations: Any) -> None:
    with pytest.raises(PatchError, match=f"more than {DEPTH_MAX} levels|nothing at"):
        json_patched({"x": nested(60)}, operations)


def test_what_a_patch_makes_of_an_object_has_limits_too(api: Served) -> None:
    api.create(node("n"))
    path = f"{NODES}/n"
    deep = [
        {"op": "add", "path": "/spec/x", "value": nested(50)},
        {"op": "add", "path": "/spec/x" + "/a" * 49 + "/a", "value": nested(50)},
    ]
    refused = api.http.patch(path, json=deep, headers={"content-type": JSON_PATCH})
    assert refused.status_code == 422, refused.text
    codes = []
    for number in range(9):
        part = {"spec": {f"x{number}.y": "z" * 200_000}}
        changed = api.http.patch(path, json=part, headers={"content-type": MERGE_PATCH})
        codes.append(changed.status_code)
    assert codes == [200] * (OBJECT_BYTES_MAX // 200_010) + [422] * (9 - OBJECT_BYTES_MAX // 200_010)
    assert str(OBJECT_BYTES_MAX) in changed.json()["message"]
    # What is there may become less, whatever it is.
    fewer = api.http.patch(path, json={"spec": {"x0.y": None}}, headers={"content-type": MERGE_PATCH})
    assert fewer.status_code == 200


def test_lists_have_a_length(api: Served) -> None:
    many = {**node("n"), "spec": {"x": ["a"] * (ITEMS_MAX + 1)}}
    assert api.http.post(NODES, json=many).status_code == 413
    api.create({**node("n"), "spec": {"x": ["a"] * ITEMS_MAX}})
    longer = [{"op": "add", "path": "/spec/x/-", "value": "b"}]
    refused = api.http.patch(f"{NODES}/n", json=longer, headers={"content-type": JSON_PATCH})
    assert (refused.status_code, str(ITEMS_MAX) in refused.text) == (422, True)


def test_bodies_of_a_kind_have_limits_of_their_own(api: Served) -> None:
    review = "spec: {resourceAttributes: {verb: get, resource: pods}}\n"
    sent = {"content-type": YAML}
    assert api.http.post(ACCESS, content=review, headers=sent).status_code == 201
    long = review + "#" * SMALL_BYTES
    assert api.http.post(ACCESS, content=long, headers=sent).status_code == 413
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: y}\n"
    refused = api.http.post(NODES, content=text + "#" * MOST_BYTES[YAML], headers=sent)
    assert (refused.status_code, "as JSON" in refused.json()["message"]) == (413, True)
    assert api.http.post(NODES, content=text + "#" * (MOST_BYTES[YAML] // 2), headers=sent).status_code == 201
    options = {"gracePeriodSeconds": 0, "x": "y" * SMALL_BYTES}
    assert api.http.request("DELETE", f"{NODES}/y", json=options).status_code == 413


def test_a_long_list_is_put_in_order_as_the_patch_says(api: Served) -> None:
    finalizers = [f"example.com/f{number}" for number in range(2_000)]
    api.create({**node("n"), "metadata": {"name": "n", "finalizers": finalizers}})
    turned = finalizers[::-1]
    patch = {"metadata": {"$setElementOrder/finalizers": turned, "finalizers": turned}}
    changed = api.http.patch(f"{NODES}/n", json=patch, headers={"content-type": STRATEGIC_PATCH})
    assert changed.json()["metadata"]["finalizers"] == turned
