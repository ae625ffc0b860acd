"""How many pods a PodDisruptionBudget allows to be taken away, as a table; and evictions end to end."""

from typing import Any

import pytest

from tests.support.clusters import Manifest, Stepped, node, pod
from tests.support.stateful_sets import stateful_set
from volsched.log.commands import Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_stream
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.rules.evictions import DisruptionError
from volsched.objects.surroundings import read_budgets
from volsched.runtime.clock import SECOND
from volsched.workloads.rules.disruption_budgets import budget_status

NOW = "2026-01-01T00:00:00Z"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def budget(**spec: Any) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
    }


def a_pod(*, ready: bool = True, owner: str | None = "set-1", **meta: Any) -> Manifest:
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": owner, "controller": True}
    owned = {} if owner is None else {"ownerReferences": [reference]}
    return {"metadata": {"name": "p", "namespace": "default", **owned, **meta}, "status": READY if ready else {}}


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        ({"minAvailable": 2}, [a_pod()] * 3, (3, 2, 1, 3)),
        ({"minAvailable": 2}, [a_pod(), a_pod(), a_pod(ready=False)], (2, 2, 0, 3)),
        ({"minAvailable": 2}, [a_pod(), a_pod(), a_pod(deletionTimestamp="t")], (2, 2, 0, 3)),
        ({"minAvailable": 0}, [], (0, 0, 0, 0)),
        ({"minAvailable": "50%"}, [a_pod()] * 3, (3, 3, 0, 5)),
        ({"maxUnavailable": 1}, [a_pod()] * 3, (3, 4, 0, 5)),
        ({"maxUnavailable": "40%"}, [a_pod()] * 4, (4, 3, 1, 5)),
        ({"maxUnavailable": "41%"}, [a_pod()] * 4, (4, 2, 2, 5)),
        ({"maxUnavailable": 9}, [a_pod()] * 3, (3, 0, 3, 5)),
        ({"maxUnavailable": 1}, [a_pod(owner=None)] * 3, (3, 0, 0, 0)),
        ({}, [a_pod()] * 3, (3, 0, 0, 0)),
    ],
    ids=[
        "one more than needed", "one is not ready", "one is going", "no pods", "percent of what is wanted",
        "of what is wanted", "percent", "percent, rounded up", "more than there are", "nobody's pods",
        "nothing said",
    ],
)  # fmt: skip
def test_what_is_allowed(spec: Manifest, pods: list[Manifest], expected: tuple[int, ...]) -> None:
    told = budget_status(budget(**spec), pods, lambda _: 5, NOW)
    counted = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    assert tuple(told[name] for name in counted) == expected
    (condition,) = told["conditions"]
    assert condition["status"] == ("True" if told["disruptionsAllowed"] else "False")


def test_where_nobody_knows_how_many_are_wanted_nothing_is_allowed() -> None:
    told = budget_status(budget(maxUnavailable=1), [a_pod()], lambda _: None, NOW)
    assert told["disruptionsAllowed"] == 0
    assert told["conditions"][0]["reason"] == "SyncFailed"
    assert told["conditions"][0]["message"] == 'found no controllers for pod "p"'


def test_a_condition_that_stays_keeps_its_time() -> None:
    first = budget_status(budget(minAvailable=1), [a_pod()], lambda _: 5, NOW)
    before = {**budget(minAvailable=1), "status": first}
    later = budget_status(before, [a_pod(), a_pod()], lambda _: 5, "2026-01-01T01:00:00Z")
    assert later["conditions"][0]["lastTransitionTime"] == "2026-01-01T01:00:00Z"
    assert budget_status(before, [a_pod()], lambda _: 5, "2026-01-01T02:00:00Z") == before["status"]


def evict(stepped: Stepped, name: str) -> Done | Exception:
    author = door.controller("drain", stepped.now)
    write = door.evict(f"default/{name}", author, budgets=read_budgets(stepped.database, "default"))
    (outcome,) = execute(stepped.database, [write.command], now=stepped.now)
    return outcome


def allowed(stepped: Stepped) -> int:
    found = stepped.cluster.get("PodDisruptionBudget", "default/db") or {}
    return int(found.get("status", {}).get("disruptionsAllowed", 0))


def test_an_eviction_is_its_callers_and_what_the_budget_has_left_follows_from_it(database: Database) -> None:
    objects = [node("n1"), node("n2"), stateful_set(templates=0), budget(minAvailable=2)]
    stepped = Stepped(database, objects, node_agent=True)
    stepped.until(lambda: allowed(stepped) == 1)
    assert isinstance(evict(stepped, "db-0"), Done)
    with database.read() as connection:
        eviction = read_stream(connection, "pod/default/db-0")[-1]
        count = read_stream(connection, "disruptionbudget/default/db")[-1]
    assert (eviction.actor, count.actor) == ("drain", "volsched")
    assert count.cause == eviction.position


def test_evictions_keep_within_the_budget(database: Database) -> None:
    objects = [node("n1"), node("n2"), stateful_set(templates=0), budget(minAvailable=2), pod("alone")]
    stepped = Stepped(database, objects, node_agent=True)
    stepped.until(lambda: allowed(stepped) == 1)
    assert isinstance(evict(stepped, "db-0"), Done)
    # Nobody has looked at the budget since: it says itself that it is used up.
    assert allowed(stepped) == 0
    refused = evict(stepped, "db-1")
    assert isinstance(refused, DisruptionError)
    assert isinstance(evict(stepped, "alone"), Done)
    going = stepped.cluster.get("Pod", "default/db-0") or {}
    assert going["metadata"]["deletionTimestamp"]
    assert going["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    stepped.step(after=SECOND // 10)
    assert allowed(stepped) == 0
    stepped.until(lambda: allowed(stepped) == 1)
    assert isinstance(evict(stepped, "db-1"), Done)
    stepped.cluster.delete("PodDisruptionBudget", "default/db")
    stepped.settle()
    assert verify(stepped.database).ok
