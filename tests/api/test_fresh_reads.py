"""Reads are answered from memory, and are never older than what was written before them, by whomever."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.support.serving import Served, served
from volsched.api.freshness import Freshness
from volsched.api.object_cache import KindCache, ObjectCache
from volsched.api.watch_cache import Fan, Tail, WatchBatch
from volsched.log.database import Database, open_database
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import KIND_OF_NOUN
from volsched.log.reads.head import FileHead, current_head
from volsched.log.reads.startup import load_world
from volsched.questions.get.columns import columns_of
from volsched.questions.get.documents import Item

NODES = "/api/v1/nodes"
CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
TABLE = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


@pytest.fixture
def pair(url: str, database: Database) -> Iterator[tuple[Served, Served]]:
    """Two servers of one store, as two processes are: each has its own connections and its own memory."""
    other = open_database(url)
    with served(database) as first, served(other) as second:
        yield first, second
    other.close()


def _node(name: str, zone: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}}}


def test_a_read_through_another_process_is_never_older_than_a_write(pair: tuple[Served, Served]) -> None:
    """Creates, changes and deletions through either server; every read through either one agrees with a model."""
    chance, model = random.Random(5), dict[str, str]()
    for step in range(40):
        writer, reader = chance.sample(pair, 2)
        name, zone = f"n{chance.randrange(6)}", chance.choice("ab")
        if name not in model:
            assert writer.http.post(NODES, json=_node(name, zone)).status_code == 201
            model[name] = zone
        elif chance.random() < 0.4:
            assert writer.http.delete(f"{NODES}/{name}").status_code == 200
            del model[name]
        else:
            patch = {"metadata": {"labels": {"zone": zone, "step": str(step)}}}
            kind = {"content-type": "application/merge-patch+json"}
            assert writer.http.patch(f"{NODES}/{name}", json=patch, headers=kind).status_code == 200
            model[name] = zone
        one = reader.http.get(f"{NODES}/{name}")
        assert one.status_code == (200 if name in model else 404)
        if name in model:
            assert one.json()["metadata"]["labels"]["zone"] == model[name]
        assert _zones(reader.http.get(NODES).json()) == model
        chosen = reader.http.get(NODES, params={"labelSelector": "zone=a"}).json()
        assert _zones(chosen) == {it: zone for it, zone in model.items() if zone == "a"}
        rows = reader.http.get(NODES, headers=TABLE).json()["rows"]
        assert [row["cells"][0] for row in rows] == sorted(model)


def _zones(listed: dict[str, Any]) -> dict[str, str]:
    names = [it["metadata"]["name"] for it in listed["items"]]
    assert names == sorted(names)
    return {it["metadata"]["name"]: it["metadata"]["labels"]["zone"] for it in listed["items"]}


def test_pages_are_as_of_the_first_whatever_is_written_in_between(pair: tuple[Served, Served]) -> None:
    writer, reader = pair
    writer.create(*(_node(f"n{index}", "a") for index in range(5)))
    first = reader.http.get(NODES, params={"limit": "2"}).json()
    token = first["metadata"]["continue"]
    untouched = reader.http.get(NODES, params={"limit": "2", "continue": token}).json()
    writer.http.delete(f"{NODES}/n3")
    writer.create(_node("n2x", "a"))
    second = reader.http.get(NODES, params={"limit": "2", "continue": token}).json()
    assert second == untouched
    third = reader.http.get(NODES, params={"limit": "2", "continue": second["metadata"]["continue"]}).json()
    names = [it["metadata"]["name"] for page in (first, second, third) for it in page["items"]]
    assert names == ["n0", "n1", "n2", "n3", "n4"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }


def test_a_namespace_has_its_own_objects_alone(api: Served) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for namespace, name in (("shop", "b"), ("shop", "a"), ("shop-2", "c"), ("sho", "d")):
        api.namespace(namespace)
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        assert api.http.post(CLAIMS.format(namespace), json=claim).status_code == 201
    found = api.http.get(CLAIMS.format("shop")).json()["items"]
    assert [it["metadata"]["name"] for it in found] == ["a", "b"]
    everywhere = api.http.get("/api/v1/persistentvolumeclaims", params={"limit": "3"}).json()["items"]
    assert [it["metadata"]["name"] for it in everywhere] == ["d", "c", "a"]


def test_a_client_that_has_the_answer_gets_no_other(api: Served) -> None:
    api.create(_node("n0", "a"))
    for path in (f"{NODES}/n0", NODES):
        answer = api.http.get(path)
        known = {"if-none-match": answer.headers["etag"]}
        again = api.http.get(path, headers=known)
        assert (again.status_code, again.content) == (304, b"")
        label = {"metadata": {"labels": {"more": path.replace("/", "-")[1:]}}}
        merge = {"content-type": "application/merge-patch+json"}
        api.http.patch(f"{NODES}/n0", json=label, headers=merge)
        assert api.http.get(path, headers=known).status_code == 200


def test_a_read_of_the_future_waits_for_nothing_and_says_so(api: Served) -> None:
    api.create(_node("n0", "a"))
    assert api.http.get(f"{NODES}/n0", params={"resourceVersion": "99999"}).status_code == 504
    assert api.http.get(f"{NODES}/n0", params={"resourceVersion": "0"}).status_code in (200, 404)


def test_what_is_in_memory_is_what_a_start_would_load(api: Served) -> None:
    api.create(*(_node(f"n{index}", "a") for index in range(4)))
    api.http.delete(f"{NODES}/n2")
    batches: list[WatchBatch] = []
    tail = Tail(api.database, batches.append)
    tail.step(0)
    api.create(_node("n9", "b"))
    api.http.delete(f"{NODES}/n1")
    tail.catch_up()
    began, then = batches
    followed = began.restarted
    assert followed is not None
    followed.follow(then.place, then.states)
    with api.database.read() as connection:
        world = load_world(connection)
    fresh = ObjectCache.of(current_head(api.database), world.states)
    assert followed.place == fresh.place
    for noun in KIND_OF_NOUN:
        everything = {"namespace": None, "after": "", "most": None}
        assert followed.kind(noun).objects(**everything) == fresh.kind(noun).objects(**everything)


def test_another_log_under_the_same_reader_is_noticed(api: Served) -> None:
    """A backup that was restored in place ends at a position that was read already, with another event."""
    api.create(_node("n0", "a"))
    batches: list[WatchBatch] = []
    tail = Tail(api.database, batches.append)
    tail.step(0)
    place = tail.place
    tail.place = (place[0], b"another")
    tail.catch_up()
    assert batches[-1].restarted is not None
    assert tail.place == place


def test_requests_that_wait_share_one_read_and_never_one_that_began_before_them(sqlite: Database) -> None:
    fan, reads = Fan(), list[int]()

    async def asked() -> list[bool]:
        gates = [asyncio.Event(), asyncio.Event()]

        async def read(call: Any) -> int:
            reads.append(len(reads))
            await gates[reads[-1]].wait()
            return int(call())

        freshness = Freshness(Tail(sqlite, fan.receive), fan, read, FileHead(sqlite))
        first = asyncio.ensure_future(freshness.confirm())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(freshness.confirm()) for _ in range(5)]
        await asyncio.sleep(0)
        assert reads == [0]
        gates[0].set()
        gates[1].set()
        return list(await asyncio.gather(first, *others))

    assert asyncio.run(asked()) == [True] * 6
    assert reads == [0, 1]


def test_what_was_made_of_an_object_counts_for_its_version_alone() -> None:
    cached = KindCache(0)
    old, new = ObjectState(1, 1, {"a": 1}), ObjectState(2, 2, {"a": 2})
    cached.put("k", old)
    assert cached.encoding("k", old, "form", lambda: "old") == "old"
    cached.put("k", new)
    # A thread that began before the change ends after it.
    assert cached.encoding("k", old, "form", lambda: "old") == "old"
    assert cached.encoding("k", new, "form", lambda: "new") == "new"


@pytest.mark.parametrize("noun", sorted(KIND_OF_NOUN))
def test_columns_that_change_with_time_say_so(noun: str) -> None:
    times = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    seen = dict.fromkeys(("firstTimestamp", "lastTimestamp"), "2026-01-01T00:00:00Z")
    state = ObjectState(1, 1, {"metadata": {"name": "it", **times}, **seen})
    early, late = (Item("default/it", state, now) for now in (1_767_300_000_000_000, 1_900_000_000_000_000))
    columns = columns_of(noun, wide=True)
    assert [it.header for it in columns if it.value(early) != it.value(late)] == [
        it.header for it in columns if it.ages
    ]


def test_a_list_that_is_kept_is_the_one_that_would_be_made(api: Served) -> None:
    api.create(*(_node(f"n{index}", "a") for index in range(3)))
    first, again = (api.http.get(NODES).content for _ in range(2))
    assert first == again
    assert [it["metadata"]["name"] for it in orjson.loads(first)["items"]] == ["n0", "n1", "n2"]
    api.http.delete(f"{NODES}/n1")
    left = orjson.loads(api.http.get(NODES).content)
    assert [it["metadata"]["name"] for it in left["items"]] == ["n0", "n2"]


def test_what_is_kept_is_bounded_and_right_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volsched.api.object_cache.MOST_OBJECTS", 3)
    cached, made = KindCache(0), list[str]()
    states = {f"k{index}": ObjectState(1, index, {}) for index in range(10)}
    cached.begin(states)

    def shown(key: str) -> str:
        return cached.encoding(key, states[key], "form", lambda: made.append(key) or f"{key} as a form")  # type: ignore[func-returns-value]

    for key in [*states, "k9", "k9"]:
        assert shown(key) == f"{key} as a form"
        assert len(cached._kept) <= 3
    assert made == [*states]
    assert shown("k0") == "k0 as a form"


def test_a_list_longer_than_the_event_loop_makes_is_the_same(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    api.create(*(_node(f"n{index}", "a") for index in range(3)))
    asked = [({}, {}), (TABLE, {}), ({}, {"limit": "2"}), ({}, {"labelSelector": "zone=a"})]
    short = [api.http.get(NODES, headers=headers, params=params).json() for headers, params in asked]
    monkeypatch.setattr("volsched.api.kubernetes.read_handlers.MOST_IN_THE_LOOP", 1)
    long = [api.http.get(NODES, headers=headers, params=params).json() for headers, params in asked]
    for table in (short[1], long[1]):
        for row in table["rows"]:
            # Ages go on.
            row["cells"] = row["cells"][:1]
    assert long == short


def test_a_deleted_collection_is_shown(api: Served) -> None:
    api.create(*(_node(f"n{index}", "a") for index in range(2)))
    gone = api.http.delete(NODES).json()
    assert [it["metadata"]["name"] for it in gone["items"]] == ["n0", "n1"]
