"""`volsched bind claim`: a claim that waits for its first consumer, bound for a node that somebody names."""

import json
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import select

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS
from volsched.cluster.port import whole
from volsched.log import tables
from volsched.log.commands import ConflictError
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.scheduling.pod_reservations import binding_alone, choose_now

MADE: dict[str, Any] = {
    **LOCAL,
    "metadata": {"name": "made"},
    "provisioner": "csi.example.com",
}
NOW_CLASS: dict[str, Any] = {**LOCAL, "metadata": {"name": "now"}, "volumeBindingMode": "Immediate"}


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture
def stepped(database: Database) -> Stepped:
    """Two nodes with a disk each, and claims of three classes that nobody uses."""
    made = Stepped(
        database,
        [LOCAL, MADE, NOW_CLASS, node("node-0"), node("node-1"), volume("disk-0", "5Gi", "node-0"),
         volume("disk-1", "9Gi", "node-1"), claim("data", "4Gi"), claim("large", "99Gi"),
         claim("new", "1Gi", "made"), claim("at-once", "1Gi", "now")],
    )  # fmt: skip
    made.settle()
    return made


def bind(run: Run, db: str, name: str, node: str, *more: str) -> Any:
    return run("bind", "claim", name, "--node", node, "--db", db, *more)


def test_a_static_volume_on_the_node_is_given_to_the_claim(run: Run, db: str, stepped: Stepped) -> None:
    ran = bind(run, db, "default/data", "node-1", "--reason", "moving day")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("claim default/data gets volume disk-1 on node node-1; ")
    stepped.settle()
    assert stepped.volume_of("data") == "disk-1"
    (told,) = (it for it in whole(stepped.cluster.list("Event")).objects if it["reason"] == "BindRequested")
    assert told["involvedObject"]["name"] == "data"
    assert told["message"].endswith(": moving day")
    events = tables.events
    asked = select(events.c.actor, events.c.data).where(
        events.c.actor.like("cli/bind/%"), events.c.type == "VolumeChanged"
    )
    with stepped.database.read() as connection:
        (row,) = connection.execute(asked)
    assert json.loads(row.data)["reason"] == "moving day"
    stepped.create(pod("db", "data"))
    stepped.until(lambda: stepped.node_of("db") == "node-1")
    assert verify(stepped.database).ok


def test_a_claim_to_be_provisioned_is_promised_to_the_node(run: Run, db: str, stepped: Stepped) -> None:
    ran = bind(run, db, "new", "node-1", "-o", "json")
    assert json.loads(ran.out) == {"claim": "default/new", "node": "node-1", "volume": None, "class": "made"}
    held = stepped.cluster.get("PersistentVolumeClaim", "default/new") or {}
    assert held["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node-1"
    again = bind(run, db, "new", "node-0")
    assert (again.code, 'is promised to node "node-1" already' in again.err) == (7, True)


@pytest.mark.parametrize(
    ("name", "node", "code", "said"),
    [
        ("nobody", "node-0", 3, 'claim "default/nobody" does not exist'),
        ("data", "nowhere", 3, 'node "nowhere" does not exist'),
        ("at-once", "node-0", 1, "does not wait for its first consumer"),
        ("large", "node-0", 4, "node(s) didn't find available persistent volumes to bind"),
    ],
)
def test_what_cannot_be_bound_is_refused_with_the_reason(
    run: Run, db: str, stepped: Stepped, name: str, node: str, code: int, said: str
) -> None:
    before = stepped.system.world.position
    ran = bind(run, db, name, node)
    assert ran.code == code
    assert said in ran.err
    stepped.system.catch_up(stepped.now)
    assert stepped.system.world.position == before


def test_a_claim_that_is_bound_is_left_alone(run: Run, db: str, stepped: Stepped) -> None:
    bind(run, db, "data", "node-0")
    stepped.settle()
    ran = bind(run, db, "data", "node-0")
    assert (ran.code, 'is bound to volume "disk-0" already' in ran.err) == (1, True)


@pytest.mark.usefixtures("stepped")
def test_a_claim_that_was_given_a_volume_is_not_given_another(run: Run, db: str) -> None:
    bind(run, db, "data", "node-0")
    again = bind(run, db, "data", "node-1")
    assert (again.code, 'volume "disk-0" was given to claim "default/data" already' in again.err) == (7, True)


def test_of_two_processes_that_bind_one_claim_at_once_one_wins(db: str, stepped: Stepped) -> None:
    command = [sys.executable, "-m", "volsched", "bind", "claim", "data", "--db", db, "--node"]
    both = [subprocess.Popen([*command, host], stderr=subprocess.PIPE, text=True) for host in ("node-0", "node-1")]
    said = [process.communicate(timeout=HANG_SECONDS)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 7], said
    assert any("was given to claim" in it for it in said), said
    stepped.settle()
    taken = [it for it in whole(stepped.cluster.list("PersistentVolume")).objects if "claimRef" in it["spec"]]
    assert [it["metadata"]["name"] for it in taken] == [stepped.volume_of("data")]


def test_a_claim_that_a_binding_has_is_left_to_it(run: Run, db: str, stepped: Stepped) -> None:
    stepped.create(pod("db", "data"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    ran = bind(run, db, "data", "node-1")
    assert (ran.code, "is being bound by binding" in ran.err) == (7, True)


def test_a_volume_that_was_planned_for_a_pod_meanwhile_is_not_taken(stepped: Stepped) -> None:
    picture, choice = choose_now(stepped.database, "default/data", "node-0", now=stepped.now)
    stepped.create(claim("other", "5Gi"), pod("db", "other"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    command = binding_alone(picture, choice, actor="test", reason="late", now=stepped.now)
    (outcome,) = execute(stepped.database, [command], now=stepped.now)
    assert isinstance(outcome, ConflictError)
    stepped.settle()
    assert stepped.volume_of("other") == "disk-0"
    assert stepped.volume_of("data") is None
