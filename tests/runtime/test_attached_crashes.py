"""Own mode dies at every named point, again and again, and the cluster alone is asked what became of it.

Nothing is bound twice, no volume is kept for a claim that could have been let go, and no pod is forgotten.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.armed_faults import DiedError, armed
from tests.support.attached_cluster import Attached, Manifest, attached, gated, ours
from tests.support.clusters import LOCAL, claim, node, volume
from tests.support.serving import strict_cluster
from volsched.cluster.permissions import GATE_MODE
from volsched.kube.meta import BINDING_STAMP
from volsched.log.database import Database

CALLED = ("executor.calling", "executor.called", "executor.recorded")
POINTS = [
    ("scheduler.decided", 1),
    ("scheduler.planned", 1),
    ("executor.claimed", 1),
    *((point, nth) for point in CALLED for nth in range(1, 5)),
]
"""A point, and how often it is reached before: a pod with two claims takes four calls."""
CALLS_OF_A_GATED_POD = 3


@pytest.fixture
def own(sqlite: Database) -> Iterator[Attached]:
    with strict_cluster() as running, attached(running, sqlite) as it:
        it.create(LOCAL, node("n1"))
        yield it


@pytest.fixture
def gate(sqlite: Database) -> Iterator[Attached]:
    with strict_cluster() as running, attached(running, sqlite, mode=GATE_MODE) as it:
        it.create(LOCAL, node("n1"))
        yield it


def dying(point: str, nth: int) -> Callable[[str], None]:
    reached = 0

    def hook(place: str) -> None:
        nonlocal reached
        reached += place == point
        if place == point and reached == nth:
            raise DiedError

    return hook


def live(own: Attached, point: str, nth: int, step: Callable[[], object]) -> None:
    """Until the process dies there; another one begins when its leases are over."""

    def never() -> bool:
        own.wait(1)
        step()
        return False

    with armed(dying(point, nth)), pytest.raises(DiedError):
        own.until(never)
    own.restart()
    own.wait(31)


def bound_truths(own: Attached) -> None:
    """As the cluster has it, whatever we think."""
    own.controller.refresh()
    taken: dict[str, str] = {}
    for name, it in own.controller.volumes.items():
        reference = it["spec"].get("claimRef")
        if reference is None:
            assert BINDING_STAMP not in own.marks(it), f"{name} is free and carries our stamp"
            continue
        held = own.controller.claims[reference["name"]]
        assert held["metadata"]["uid"] == reference["uid"]
        assert held["spec"].get("volumeName") == name, f"{name} is kept for a claim that has another, or none"
        assert reference["name"] not in taken, f"{reference['name']} has two volumes"
        taken[reference["name"]] = name


def play(
    own: Attached, made: Callable[..., Manifest], number: int, point: str, nth: int, done: Callable[[str], object]
) -> str:
    """A pod with two claims, during which the process dies once; the next process brings it to its end."""
    name, size = f"c{number}", f"{20 + number}Gi"
    own.create(
        volume(f"{name}-small", "2Gi", "n1"),
        volume(f"{name}-large", size, "n1"),
        claim(f"{name}-data", "1Gi"),
        claim(f"{name}-logs", size),
    )
    own.running.create(made(name, f"{name}-data", f"{name}-logs"))
    live(own, point, nth, own.controller.bind)
    own.until(lambda: done(name) and own.has_settled(), seconds=1, binds=True)
    bound_truths(own)
    return name


def test_a_process_that_dies_at_any_point_of_a_binding_is_succeeded_by_one_that_ends_it(own: Attached) -> None:
    for number, (point, nth) in enumerate(POINTS):
        play(own, ours, number, point, nth, lambda name: own.node_of(name) == "n1")


def test_gate_mode_that_dies_at_any_point_is_succeeded_by_one_that_removes_the_gate(gate: Attached) -> None:
    """Of its three calls the last removes the gate; no pod is nominated or bound."""
    for number, (point, nth) in enumerate((point, nth) for point, nth in POINTS if nth <= CALLS_OF_A_GATED_POD):
        name = play(gate, gated, number, point, nth, lambda it: not gate.pod(it)["spec"].get("schedulingGates"))
        pod = gate.pod(name)
        assert pod["spec"].get("nodeName") is None
        assert pod.get("status", {}).get("nominatedNodeName") is None
        assert all(gate.claim(f"{name}-{it}")["spec"].get("volumeName") for it in ("data", "logs"))


def test_a_process_that_dies_at_any_point_of_a_rollback_leaves_nothing_that_could_be_freed(own: Attached) -> None:
    """No controller runs, so every volume is in S2 and must be free at the end."""
    own.create(
        volume("small", "2Gi", "n1"), volume("large", "20Gi", "n1"), claim("data", "1Gi"), claim("logs", "5Gi")
    )
    rollback = [("executor.claimed", 1), *(("executor.calling", nth) for nth in (1, 2)), ("executor.called", 1),
                ("executor.called", 2), ("executor.recorded", 1)]  # fmt: skip
    for point, nth in rollback:
        own.running.create(ours("db", "data", "logs"))
        own.until(lambda: own.given_to("small") and own.given_to("large"))
        own.running.http.delete("/api/v1/namespaces/default/pods/db?gracePeriodSeconds=0")
        live(own, point, nth, lambda: None)

        own.until(own.has_settled, seconds=1)
        assert (own.given_to("small"), own.given_to("large")) == (None, None)
        bound_truths(own)
