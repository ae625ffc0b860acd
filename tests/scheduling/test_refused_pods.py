"""Pods that found no node: what they are told is not lost, and who turned them away is not asked too soon."""

import logging
from typing import Any

import pytest
from pydantic_core import from_json
from sqlalchemy import select

from tests.support.attempt_reads import attempts, change, condition
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, turned_away
from volsched.log import tables
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision
from volsched.log.transaction import execute

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def beat(stepped: Stepped) -> None:
    """As a kubelet does every few minutes."""
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2027-01-15T08:00:00Z"}
    change(stepped, "Node", "node-0", to_status=True, status={"conditions": [ready]})


def test_a_heartbeat_does_not_make_a_node_that_rejected_the_pod_another_one(database: Database) -> None:
    stepped = turned_away(database)
    beat(stepped)
    # A new node has the pod tried again, whatever it is good for.
    stepped.create({**node("node-1"), "spec": {"unschedulable": True}})
    stepped.until(lambda: "1 node(s) were unschedulable" in stepped.system.scheduler.waiting()["default/db"])
    assert "1 node(s) previously rejected the pod" in stepped.system.scheduler.waiting()["default/db"]
    held = stepped.cluster.get("Node", "node-0") or {}
    change(stepped, "Node", "node-0", to_status=True, status={**held["status"], "allocatable": {"memory": "9Gi"}})
    stepped.until(lambda: stepped.node_of("db") == "node-0")


def test_the_nodes_of_a_refusal_are_stored_with_it(database: Database) -> None:
    nodes = [node(f"node-{number}") for number in range(7)]
    cordoned = [{**node(f"off-{number}"), "spec": {"unschedulable": True}} for number in range(2)]
    stepped = Stepped(database, [LOCAL, *nodes, *cordoned, claim("data", "4Gi"), pod("db", "data")])
    stepped.settle()
    made = tables.attempts
    with database.read() as connection:
        (detail,) = connection.execute(select(made.c.detail)).scalars()
    reasons: Any = from_json(detail)["reasons"]
    assert [(it["nodes"], it["some"]) for it in reasons] == [
        (7, [f"node-{number}" for number in range(5)]),
        (2, ["off-0", "off-1"]),
    ]


def test_what_could_not_be_written_is_reported_once_it_can_be(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier version has left a status that nobody can add to; it keeps no other pod waiting either."""
    stepped = Stepped(database, [LOCAL, node("node-0"), claim("data", "4Gi"), claim("more", "4Gi")])
    stepped.create(pod("other", "more"), pod("db", "data"))
    odd = NewEvent(stream="pod/default/db", type="PodChanged", data={"patch": {"status": {"conditions": ["odd"]}}})
    (outcome,) = execute(
        database,
        [Command(actor="before", streams=(odd.stream,), decide=lambda _: Decision(events=(odd,)))],
        now=stepped.now,
    )
    assert isinstance(outcome, Done)
    with caplog.at_level(logging.WARNING, logger="volsched.scheduler"):
        stepped.settle()
    assert 'why pod "default/db" found no node could not be recorded' in caplog.text
    assert (attempts(stepped), set(stepped.system.scheduler.waiting())) == ([], {"default/other"})
    change(stepped, "Pod", "default/db", to_status=True, status={})
    stepped.until(lambda: condition(stepped) is not None)
    assert [row.outcome for row in attempts(stepped)] == ["unschedulable"]
