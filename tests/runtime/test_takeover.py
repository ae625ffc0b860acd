"""A process that starts takes the next step of what was in flight itself, also where workers are to do the rest.

Workers may have died with everybody else, and take longer to start than whoever wakes them.
"""

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.log.database import Database
from volsched.log.integrity.verify import verify

CLUSTER = (
    LOCAL,
    node("n1"),
    node("n2"),
    *(volume(f"{host}-{number}", "2Gi", host) for host in ("n1", "n2") for number in range(2)),
    claim("c", "1Gi"),
)
THIEF = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "thief", "uid": "uid-thief"}


def left_in_flight(database: Database) -> Stepped:
    """A binding is planned, and nobody is there to carry it out."""
    dead = Stepped(database, CLUSTER, owner="dead", bell=lambda: None)
    dead.settle()
    dead.create(pod("a", "c"))
    for _ in range(3):
        dead.step()
    (binding,) = dead.bindings()
    assert [leg.state for leg in dead.legs(binding.id)] == ["assumed"]
    return dead


def test_the_first_step_writes_what_the_dead_had_decided(database: Database) -> None:
    dead = left_in_flight(database)
    heir = Stepped(database, owner="heir", bell=lambda: None, takes_over=True)
    heir.now = dead.now
    heir.step()
    (binding,) = heir.bindings()
    assert [leg.state for leg in heir.legs(binding.id)] != ["assumed"]
    assert verify(database).ok


def test_the_first_step_undoes_it_where_the_volume_was_stolen(database: Database) -> None:
    dead = left_in_flight(database)
    (binding,) = dead.bindings()
    (leg,) = dead.legs(binding.id)
    wanted = dict(dead.cluster.get("PersistentVolume", leg.volume) or {})
    dead.cluster.update("PersistentVolume", {**wanted, "spec": {**wanted["spec"], "claimRef": THIEF}})
    heir = Stepped(database, owner="heir", bell=lambda: None, takes_over=True)
    heir.now = dead.now
    heir.step()
    first = heir.bindings()[0]
    assert first.state in ("compensating", "rolled-back")
    assert leg.volume in first.reason


def test_afterwards_it_leaves_the_work_to_workers(database: Database) -> None:
    heir = Stepped(database, CLUSTER, owner="heir", bell=lambda: None, takes_over=True)
    heir.settle()
    heir.create(pod("a", "c"))
    for _ in range(10):
        heir.step()
    (binding,) = heir.bindings()
    assert [leg.state for leg in heir.legs(binding.id)] == ["assumed"]


def test_whoever_is_not_meant_to_leaves_all_of_it(database: Database) -> None:
    """As where the objects live in a foreign cluster, which only its workers can reach."""
    dead = left_in_flight(database)
    heir = Stepped(database, owner="heir", bell=lambda: None)
    heir.now = dead.now
    heir.step()
    (binding,) = heir.bindings()
    assert [leg.state for leg in heir.legs(binding.id)] == ["assumed"]
