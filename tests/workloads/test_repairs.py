"""Repairs: promises to nodes that are gone, and names that are used again for another node."""

import pytest

from tests.support.clusters import MADE, Manifest, Stepped, claim, node, pod, volume
from volsched.kube.meta import SELECTED_NODE
from volsched.log.database import Database
from volsched.runtime.clock import SECOND
from volsched.workloads.controllers import Upkeep

REMOVED = "SelectedNodeRemoved"


def promised(name: str, host: str) -> Manifest:
    made = claim(name, "1Gi", "made")
    made["metadata"]["annotations"] = {SELECTED_NODE: host}
    return made


def promise(stepped: Stepped, name: str = "data") -> str | None:
    found = stepped.cluster.get("PersistentVolumeClaim", f"default/{name}") or {}
    chosen: str | None = found["metadata"].get("annotations", {}).get(SELECTED_NODE)
    return chosen


def wait(stepped: Stepped, seconds: int) -> None:
    for _ in range(seconds):
        stepped.step(after=SECOND)


def test_a_promise_to_a_node_that_is_gone_is_taken_off_after_a_minute(database: Database) -> None:
    stepped = Stepped(database, [MADE, node("old"), promised("data", "old"), node("new"), pod("db", "data")])
    stepped.step()
    stepped.cluster.delete("Node", "old")
    wait(stepped, 58)
    assert promise(stepped) == "old"
    assert stepped.messages(REMOVED) == []
    stepped.until(lambda: promise(stepped) == "new")
    assert len(stepped.messages(REMOVED)) == 1
    assert '"old"' in stepped.messages(REMOVED)[0]


def test_a_node_that_never_was_is_as_gone_as_any(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [MADE, promised("data", "nowhere")])
    wait(stepped, 58)
    assert promise(stepped) == "nowhere"
    wait(stepped, 4)
    assert promise(stepped) is None


def test_how_long_it_has_been_gone_is_known_after_a_restart(sqlite: Database) -> None:
    before = Stepped(sqlite, [MADE, node("old"), promised("data", "old")], without=(Upkeep.STALE_NODES,))
    before.cluster.delete("Node", "old")
    after = Stepped(sqlite, owner="after")
    after.now = before.now + 61 * SECOND
    after.step()
    # The controller had something to say about the claim first.
    after.step()
    assert promise(after) is None


def test_a_node_that_comes_back_in_time_is_another_node(sqlite: Database) -> None:
    """The promise was made to the one before: it is decided again, after the same minute."""
    stepped = Stepped(sqlite, [MADE, node("old"), promised("data", "old")])
    stepped.step()
    stepped.cluster.delete("Node", "old")
    wait(stepped, 5)
    stepped.create(node("old"))
    wait(stepped, 50)
    assert promise(stepped) == "old"
    wait(stepped, 10)
    assert promise(stepped) is None


def test_a_node_replaced_while_nobody_looked_is_noticed(sqlite: Database) -> None:
    before = Stepped(sqlite, [MADE, node("old"), promised("data", "old")], without=(Upkeep.STALE_NODES,))
    before.cluster.delete("Node", "old")
    before.create(node("old"))
    after = Stepped(sqlite, owner="after")
    after.now = before.now + 61 * SECOND
    after.step()
    # The controller had something to say about the claim first.
    after.step()
    assert promise(after) is None


def test_a_promise_made_to_the_new_node_stands(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [MADE, node("n")])
    stepped.cluster.delete("Node", "n")
    stepped.create(node("n"), promised("data", "n"))
    wait(stepped, 70)
    assert promise(stepped) == "n"


@pytest.mark.parametrize("how", ["by name", "by claimRef"])
def test_where_a_volume_was_made_the_promise_stays(sqlite: Database, how: str) -> None:
    stepped = Stepped(sqlite, [MADE, node("old"), promised("data", "old")])
    found = stepped.cluster.get("PersistentVolumeClaim", "default/data") or {}
    made = volume(f"pvc-{found['metadata']['uid']}" if how == "by name" else "own", "1Gi", "old", "made")
    if how == "by claimRef":
        # Of another mode, so that nothing binds it and it only stands for the claim.
        made["spec"] |= {"volumeMode": "Block", "claimRef": {"namespace": "default", "name": "data"}}
    stepped.create(made)
    stepped.cluster.delete("Node", "old")
    wait(stepped, 70)
    assert promise(stepped) == "old"


def test_an_open_binding_keeps_its_promise(sqlite: Database) -> None:
    """It fails by its own rules (the node is gone), and what it leaves is repaired then."""
    stepped = Stepped(sqlite, [MADE, node("old"), claim("data", "1Gi", "made"), pod("db", "data")])
    stepped.until(lambda: promise(stepped) == "old")
    assert stepped.bindings()[0].open
    wait(stepped, 70)
    assert stepped.bindings()[0].open
    assert promise(stepped) == "old"
    assert stepped.messages(REMOVED) == []
    stepped.cluster.delete("Node", "old")
    stepped.create(node("new"))
    stepped.until(lambda: promise(stepped) == "new", steps=900)


def test_a_node_of_the_same_name_does_not_inherit_a_rejection(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [node("n"), pod("web")])
    stepped.until(lambda: stepped.node_of("web") == "n")
    found = stepped.cluster.get("Pod", "default/web") or {}
    stepped.cluster.unassign_pod("default/web", uid=found["metadata"]["uid"], reason="out of memory")
    wait(stepped, 5)
    assert stepped.node_of("web") is None
    stepped.cluster.delete("Node", "n")
    stepped.create(node("n"))
    # Written after the node was made, so that only the node's age can tell.
    found = dict(stepped.cluster.get("Pod", "default/web") or {})
    stepped.cluster.update("Pod", {**found, "metadata": {**found["metadata"], "labels": {"touched": "yes"}}})
    stepped.until(lambda: stepped.node_of("web") == "n", steps=300)
