"""The story volsched exists for: one of two volumes is taken by somebody else after the other was written.

The reference leaves the small claim bound on the first node, and the pod pending for ever although another node
could serve both. Here the transaction is undone and the pod ends on the other node.
"""

from tests.support.clusters import Stepped
from tests.support.volume_theft import take
from volsched.cluster.port import whole
from volsched.kube.meta import BINDING_STAMP, BOUND_BY_CONTROLLER
from volsched.log.integrity.verify import verify
from volsched.runtime.clock import SECOND


def plan_and_write_small(stepped: Stepped) -> None:
    stepped.plan_and_write()
    written = stepped.cluster.get("PersistentVolume", "n1-small") or {}
    untouched = stepped.cluster.get("PersistentVolume", "n1-large") or {}
    assert written["spec"]["claimRef"]["name"] == "small"
    assert "claimRef" not in untouched["spec"]


def let_controller_bind_small(stepped: Stepped) -> None:
    """Nobody else moves: first the volume is looked at, then the claim that it points to."""
    for _ in range(3):
        stepped.system.catch_up(stepped.now)
        stepped.system.controller.step(stepped.now)
    assert stepped.volume_of("small") == "n1-small"


def test_the_plan_is_the_closest_fit(stepped: Stepped) -> None:
    plan_and_write_small(stepped)
    (binding,) = stepped.bindings()
    assert binding.node == "node-1"
    assert [(leg.claim, leg.volume) for leg in stepped.legs(binding.id)] == [
        ("default/small", "n1-small"),
        ("default/large", "n1-large"),
    ]


def test_a_stolen_volume_rolls_the_transaction_back_and_the_pod_ends_on_the_other_node(stepped: Stepped) -> None:
    plan_and_write_small(stepped)
    take(stepped, "n1-large")
    stepped.until(lambda: stepped.node_of("db") is not None)
    stepped.settle()
    assert stepped.node_of("db") == "node-0"
    assert (stepped.volume_of("small"), stepped.volume_of("large")) == ("n0-small", "n0-large")
    freed = stepped.cluster.get("PersistentVolume", "n1-small") or {}
    assert "claimRef" not in freed["spec"]
    assert freed["status"]["phase"] == "Available"
    assert {BINDING_STAMP, BOUND_BY_CONTROLLER}.isdisjoint(freed["metadata"].get("annotations", {}))
    first, second = stepped.bindings()
    assert (first.state, second.state) == ("rolled-back", "committed")
    assert "n1-large" in first.reason
    assert [leg.state for leg in stepped.legs(first.id)] == ["released", "voided"]
    assert verify(stepped.database).ok


def test_a_claim_that_was_bound_meanwhile_is_asked_back_when_it_pins_the_pod(stepped: Stepped) -> None:
    """The same theft, but the controller was faster: the small claim is bound, and clean."""
    plan_and_write_small(stepped)
    take(stepped, "n1-large")
    let_controller_bind_small(stepped)
    stepped.until(lambda: stepped.node_of("db") is not None, steps=1_000)
    assert stepped.node_of("db") == "node-0"
    first = stepped.bindings()[0]
    assert stepped.legs(first.id)[0].state == "retained"
    freed = stepped.cluster.get("PersistentVolume", "n1-small") or {}
    assert "claimRef" not in freed["spec"]
    reasons = {notice["reason"] for notice in whole(stepped.cluster.list("Event")).objects}
    assert {"RollbackRequested", "RollbackCompleted"} <= reasons
    assert verify(stepped.database).ok


def test_the_claim_is_not_asked_back_once_it_may_hold_data(stepped: Stepped) -> None:
    plan_and_write_small(stepped)
    take(stepped, "n1-large")
    let_controller_bind_small(stepped)
    bound = dict(stepped.cluster.get("PersistentVolumeClaim", "default/small") or {})
    used = {**bound, "status": {**bound["status"], "dataState": "Dirty"}}
    stepped.cluster.update("PersistentVolumeClaim", used, status=True)
    for _ in range(300):
        stepped.step(after=SECOND // 10)
    assert stepped.node_of("db") is None
    assert stepped.volume_of("small") == "n1-small"
    assert verify(stepped.database).ok


def test_history_tells_the_story(stepped: Stepped) -> None:
    plan_and_write_small(stepped)
    take(stepped, "n1-large")
    stepped.until(lambda: stepped.node_of("db") is not None)
    first = stepped.bindings()[0]
    kinds = [line.split(" ", 1)[0] for line in stepped.story(first.id)]
    assert kinds == [
        "BindingPlanned",
        "LegMoved",  # small was written
        "LegMoved",  # large was refused
        "BindingMoved",  # compensating
        "LegMoved",  # small is being released
        "LegMoved",  # small is released
        "BindingMoved",  # rolled back
    ]
