"""What users may rely on, played on the whole system: a test for each promise, named after it.

Nodes run what they are given (the node agent), so "runs" means Running.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.stateful_sets import stateful_set
from tests.support.storage import made_by
from volsched.cluster.port import whole
from volsched.kube.meta import PROVISIONED_BY
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.provisioning.simulated import SIMULATED, Array, Simulated
from volsched.questions.invariants import violations
from volsched.runtime import fault_points

HOST = "kubernetes.io/hostname"


def played(database: Database, *objects: Manifest, **parts: Any) -> Stepped:
    """The objects are created, and everything has come to rest."""
    stepped = Stepped(database, [LOCAL, *objects], node_agent=True, **parts)
    stepped.settle(steps=2_000)
    return stepped


def near(kind: str) -> dict[str, Any]:
    """The set's pods want to be on one node (podAffinity), or each on its own (podAntiAffinity)."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def replicas(count: int, affinity: dict[str, Any]) -> Manifest:
    made = stateful_set(replicas=count, podManagementPolicy="Parallel")
    made["spec"]["template"]["spec"]["affinity"] = affinity
    return made


def nodes(count: int) -> list[Manifest]:
    return [node(f"node-{i}") for i in range(count)]


def disks(*hosts: int, size: str = "2Gi") -> list[Manifest]:
    return [volume(f"disk-{i}", size, f"node-{host}") for i, host in enumerate(hosts)]


def phases(stepped: Stepped) -> dict[str, str]:
    return {it["metadata"]["name"]: it["status"]["phase"] for it in whole(stepped.cluster.list("Pod")).objects}


def hosts(stepped: Stepped) -> Counter[str | None]:
    return Counter(it["spec"].get("nodeName") for it in whole(stepped.cluster.list("Pod")).objects)


# --- end to end -----------------------------------------------------------------------------------------


def test_stateful_set_of_three_with_anti_affinity_and_local_volumes_on_all_three_nodes_all_run(
    database: Database,
) -> None:
    stepped = played(database, *nodes(3), *disks(0, 1, 2), replicas(3, near("podAntiAffinity")))
    assert phases(stepped) == {f"db-{i}": "Running" for i in range(3)}
    assert hosts(stepped) == {"node-0": 1, "node-1": 1, "node-2": 1}


def test_stateful_set_of_three_with_anti_affinity_and_local_volumes_on_two_of_three_the_third_is_pending(
    sqlite: Database,
) -> None:
    stepped = played(sqlite, *nodes(3), *disks(0, 0, 1, 1), replicas(3, near("podAntiAffinity")))
    assert Counter(phases(stepped).values()) == {"Running": 2, "Pending": 1}
    assert hosts(stepped) == {"node-0": 1, "node-1": 1, None: 1}


def test_stateful_set_with_affinity_and_several_local_volumes_on_one_node_runs(sqlite: Database) -> None:
    stepped = played(sqlite, *nodes(3), *disks(1, 1, 1), replicas(3, near("podAffinity")))
    assert phases(stepped) == {f"db-{i}": "Running" for i in range(3)}
    assert hosts(stepped) == {"node-1": 3}


def test_stateful_set_with_affinity_and_one_local_volume_per_node_is_pending(sqlite: Database) -> None:
    stepped = played(sqlite, *nodes(3), *disks(0, 1, 2), replicas(3, near("podAffinity")))
    assert Counter(phases(stepped).values()) == {"Running": 1, "Pending": 2}


def test_several_claims_and_enough_local_volumes_on_one_node_run(database: Database) -> None:
    claims = [claim(f"data-{i}", "1Gi") for i in range(3)]
    stepped = played(
        database, *nodes(2), *disks(0, 1, 1, 1), *claims, pod("app", *(f"data-{i}" for i in range(3)))
    )
    assert phases(stepped) == {"app": "Running"}
    assert stepped.node_of("app") == "node-1"


def test_several_claims_and_not_enough_local_volumes_on_any_single_node_are_pending(sqlite: Database) -> None:
    claims = [claim(f"data-{i}", "1Gi") for i in range(3)]
    stepped = played(sqlite, *nodes(2), *disks(0, 0, 1, 1), *claims, pod("app", *(f"data-{i}" for i in range(3))))
    assert phases(stepped) == {"app": "Pending"}
    # And nothing is taken by halves.
    assert [stepped.volume_of(f"data-{i}") for i in range(3)] == [None, None, None]


def test_unsuitable_static_volumes_fall_back_to_dynamic_provisioning(database: Database) -> None:
    small = volume("small", "1Gi", "node-0", "made")
    stepped = played(
        database,
        made_by(SIMULATED, topologyKeys=HOST), *nodes(1), small, claim("data", "5Gi", "made"), pod("app", "data"),
        provisioners=[Simulated(Array())],
    )  # fmt: skip
    assert phases(stepped) == {"app": "Running"}
    made = stepped.cluster.get("PersistentVolume", stepped.volume_of("data") or "") or {}
    assert made["metadata"]["annotations"][PROVISIONED_BY] == SIMULATED
    assert (stepped.cluster.get("PersistentVolume", "small") or {})["status"]["phase"] == "Available"


# --- unit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitting", [0, 1])
def test_all_claims_match_on_the_first_or_the_second_node_best_by_capacity(sqlite: Database, fitting: int) -> None:
    here, there = f"node-{fitting}", f"node-{1 - fitting}"
    volumes = [
        volume("wide", "9Gi", here), volume("close", "3Gi", here), volume("closest", "2Gi", here),
        volume("alone", "3Gi", there),
    ]  # fmt: skip
    stepped = played(
        sqlite, *nodes(2), *volumes, claim("small", "2Gi"), claim("large", "3Gi"), pod("app", "small", "large")
    )
    assert stepped.node_of("app") == here
    assert (stepped.volume_of("small"), stepped.volume_of("large")) == ("closest", "close")


def test_two_of_three_claims_match_and_the_node_is_refused(sqlite: Database) -> None:
    claims = [claim("a", "1Gi"), claim("b", "1Gi"), claim("c", "5Gi")]
    stepped = played(sqlite, *nodes(1), *disks(0, 0, 0), *claims, pod("app", "a", "b", "c"))
    assert stepped.node_of("app") is None


def test_two_of_three_claims_match_and_the_third_is_provisioned(sqlite: Database) -> None:
    claims = [claim("a", "1Gi"), claim("b", "1Gi"), claim("c", "5Gi", "made")]
    stepped = played(
        sqlite, made_by(SIMULATED, topologyKeys=HOST), *nodes(1), *disks(0, 0), *claims, pod("app", "a", "b", "c"),
        provisioners=[Simulated(Array())],
    )  # fmt: skip
    assert phases(stepped) == {"app": "Running"}


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [("5Gi", "5Gi", "node-1"), ("5Gi", "9Gi", "node-0"), ("9Gi", "5Gi", "node-1")],
    ids=["equal: where the ties of pod app begin", "scoring leaves the order", "scoring changes the order"],
)
def test_scoring_leaves_or_changes_node_order(sqlite: Database, first: str, second: str, chosen: str) -> None:
    volumes = [volume("a", first, "node-0"), volume("b", second, "node-1")]
    stepped = played(sqlite, *nodes(2), *volumes, claim("data", "4Gi"), pod("app", "data"))
    assert stepped.node_of("app") == chosen


def test_prebound_volumes_are_not_matched_for_other_claims(sqlite: Database) -> None:
    reserved = volume("reserved", "2Gi", "node-0")
    reserved["spec"]["claimRef"] = {"namespace": "default", "name": "owner"}
    stepped = played(sqlite, *nodes(1), reserved, claim("data", "1Gi"), pod("app", "data"))
    assert stepped.node_of("app") is None
    stepped.create(claim("owner", "1Gi"))
    stepped.settle()
    assert (stepped.volume_of("owner"), stepped.volume_of("data")) == ("reserved", None)


# --- property -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_no_volume_is_chosen_twice_every_one_reaches_its_node_and_any_crash_converges(
    sqlite: Database, seed: int
) -> None:
    """Random clusters, with a new process at every third commit (8.2, 9.7, 10.1) until all is at rest."""
    rng = Random(seed)
    objects = [LOCAL, *nodes(3), *disks(*(rng.randrange(3) for _ in range(rng.randint(4, 9))), size="3Gi")]
    for number in range(5):
        names = [f"data-{number}-{i}" for i in range(rng.randint(1, 3))]
        objects += [*(claim(name, f"{rng.randint(1, 3)}Gi") for name in names), pod(f"app-{number}", *names)]
    stepped, commits = Stepped(sqlite, objects, node_agent=True), 0

    def crash(point: str) -> None:
        nonlocal commits
        commits += point == "commit.after"
        if point == "commit.after" and commits % 3 == 0:
            raise fault_points.FaultError

    for number in range(40):
        fault_points.arm(crash, drill=True)
        try:
            stepped.step(after=500_000)
        except fault_points.FaultError:
            now = stepped.now
            stepped = Stepped(sqlite, owner=f"again-{number}", node_agent=True)
            stepped.now = now
        finally:
            fault_points.arm(None, drill=False)
    stepped.now += 60_000_000
    stepped.settle(steps=2_000)
    with sqlite.read() as connection:
        assert violations(connection, at_rest=True) == []
    bound = Counter(
        it["spec"].get("volumeName") for it in whole(stepped.cluster.list("PersistentVolumeClaim")).objects
    )
    assert all(count == 1 for name, count in bound.items() if name)
    for it in whole(stepped.cluster.list("Pod")).objects:
        for mount in it["spec"].get("volumes", ()) if it["spec"].get("nodeName") else ():
            name = stepped.volume_of(mount["persistentVolumeClaim"]["claimName"])
            used = stepped.cluster.get("PersistentVolume", name or "") or {}
            (term,) = used["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert it["spec"]["nodeName"] in term["matchExpressions"][0]["values"]
    assert verify(sqlite).ok


# Caches on and off give identical outcomes: tests/scheduling/test_index_properties.py. What pods without claims
# cost, and a search for volumes: `volsched bench decide`.
