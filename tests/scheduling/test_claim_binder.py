"""Claims bound without a pod: the room they take counts as a pod's does, and of two requests one is refused."""

from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from tests.support.interruptions import change, once_decided
from tests.support.two_schedulers import capacity_cluster, follow
from volsched.binding.rules.reservations import NothingFitsError
from volsched.log.commands import ConflictError, Done
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.scheduling.capacity_ledger import HOLD_AT_MOST
from volsched.scheduling.pod_reservations import binding_alone, choose_now
from volsched.scheduling.rules.configuration import Configuration

ACTOR = "cli/bind/ada"
POOL = "default/pool"


def pooled(database: Database) -> Stepped:
    """Ten gibibytes that two nodes share, and claims that want six each."""
    stepped = Stepped(database, [it for it in capacity_cluster() if it["kind"] != "Pod"])
    follow(stepped)
    return stepped


def bind(database: Database, name: str, host: str, now: int) -> Any:
    picture, choice = choose_now(database, f"default/{name}", host, now=now)
    command = binding_alone(picture, choice, actor=ACTOR, reason="now", now=now)
    return execute(database, [command], now=now)[0]


def reserved(stepped: Stepped) -> int:
    follow(stepped)
    return stepped.system.picture.index.snapshot.reserved.get(POOL, 0) >> 30


def provision(stepped: Stepped, name: str) -> None:
    """As an external provisioner does: a volume for the claim, which the PV controller then binds."""
    held = stepped.cluster.get("PersistentVolumeClaim", f"default/{name}") or {}
    made = volume(f"made-for-{name}", "6Gi", "node-0", "made")
    made["spec"]["claimRef"] = {"namespace": "default", "name": name, "uid": held["metadata"]["uid"]}
    made["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "csi.example.com"}
    stepped.create(made)
    stepped.until(lambda: stepped.volume_of(name) is not None)


def publish(stepped: Stepped, size: str) -> None:
    def deed(it: Manifest) -> None:
        it["capacity"] = size

    change(stepped, "CSIStorageCapacity", POOL, deed)


def test_room_that_a_claim_was_promised_is_not_promised_to_another(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    assert isinstance(bind(sqlite, "a", "node-0", stepped.now), Done)
    assert reserved(stepped) == 6
    with pytest.raises(NothingFitsError, match="did not have enough free storage"):
        bind(sqlite, "b", "node-1", stepped.now)
    stepped.create(pod("b", "b"))
    stepped.until(lambda: "default/b" in stepped.system.scheduler.waiting())
    assert "did not have enough free storage" in stepped.system.scheduler.waiting()["default/b"]


def test_its_own_room_is_not_in_the_way_of_the_pod_that_comes_for_the_claim(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    bind(sqlite, "a", "node-1", stepped.now)
    stepped.create(pod("a", "a"))
    stepped.until(lambda: bool(stepped.bindings()))
    assert [(row.pod, row.node) for row in stepped.bindings()] == [("default/a", "node-1")]
    assert reserved(stepped) == 6


def test_the_room_is_held_until_the_driver_publishes_what_is_left(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    bind(sqlite, "a", "node-0", stepped.now)
    provision(stepped, "a")
    assert reserved(stepped) == 6
    publish(stepped, "4Gi")
    assert reserved(stepped) == 0


def test_a_driver_that_publishes_nothing_new_is_not_waited_for_for_ever(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    bind(sqlite, "a", "node-0", stepped.now)
    stepped.now += HOLD_AT_MOST
    assert reserved(stepped) == 6, "as long as the volume is to come"
    provision(stepped, "a")
    assert reserved(stepped) == 6
    stepped.now += HOLD_AT_MOST + SECOND
    assert reserved(stepped) == 0


def test_how_long_is_waited_can_be_set(sqlite: Database) -> None:
    objects = [it for it in capacity_cluster() if it["kind"] != "Pod"]
    stepped = Stepped(sqlite, objects, configuration=Configuration(capacity_hold_seconds=7))
    bind(sqlite, "a", "node-0", stepped.now)
    provision(stepped, "a")
    assert reserved(stepped) == 6
    stepped.now += 7 * SECOND
    assert reserved(stepped) == 0


def test_a_new_process_knows_of_the_room(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    bind(sqlite, "a", "node-0", stepped.now)
    second = Stepped(sqlite, owner="second")
    second.now = stepped.now
    assert reserved(second) == 6
    provision(stepped, "a")
    third, late = Stepped(sqlite, owner="third"), Stepped(sqlite, owner="late")
    third.now, late.now = stepped.now, stepped.now + HOLD_AT_MOST + SECOND
    assert (reserved(third), reserved(late)) == (6, 0)


def test_a_claim_that_loses_its_node_or_goes_away_gives_the_room_back(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    bind(sqlite, "a", "node-0", stepped.now)

    def let_go(it: Manifest) -> None:
        del it["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]

    change(stepped, "PersistentVolumeClaim", "default/a", let_go)
    assert reserved(stepped) == 0
    bind(sqlite, "b", "node-1", stepped.now)
    assert reserved(stepped) == 6
    stepped.cluster.delete("PersistentVolumeClaim", "default/b")
    stepped.settle()
    assert reserved(stepped) == 0


def test_a_plan_that_was_decided_on_the_same_room_is_refused(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    stepped.create(pod("b", "b"))
    once_decided(lambda: bind(sqlite, "a", "node-0", stepped.now))
    follow(stepped)
    assert stepped.bindings() == []
    assert reserved(stepped) == 6


def test_of_two_requests_at_once_for_one_claim_by_one_person_one_is_refused(database: Database) -> None:
    """They touch no object in common: each has chosen the volume of another node."""
    disks = [volume(f"disk-{number}", "5Gi", f"node-{number}") for number in range(2)]
    stepped = Stepped(database, [LOCAL, node("node-0"), node("node-1"), *disks, claim("data", "4Gi")])
    stepped.settle()
    chosen = [choose_now(database, "default/data", host, now=stepped.now) for host in ("node-0", "node-1")]
    commands = [binding_alone(*it, actor=ACTOR, reason="now", now=stepped.now) for it in chosen]
    first, second = (execute(database, [it], now=stepped.now)[0] for it in commands)
    assert isinstance(first, Done)
    assert isinstance(second, ConflictError)
    assert 'volume "disk-0" was given to claim "default/data"' in str(second)
    stepped.settle()
    assert stepped.volume_of("data") == "disk-0"
    assert verify(database).ok


def test_of_two_requests_at_once_for_one_room_by_one_person_one_is_refused(sqlite: Database) -> None:
    stepped = pooled(sqlite)
    chosen = [choose_now(sqlite, f"default/{name}", "node-0", now=stepped.now) for name in "ab"]
    commands = [binding_alone(*it, actor=ACTOR, reason="now", now=stepped.now) for it in chosen]
    first, second = (execute(sqlite, [it], now=stepped.now)[0] for it in commands)
    assert isinstance(first, Done)
    assert isinstance(second, ConflictError)
    assert 'claim "default/a" was promised some of the same capacity' in str(second)
