"""Reservations in a whole system: held against everybody, confirmed into a binding, and never leaked."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.store_samples import commit
from volsched.binding.recovery import recover
from volsched.binding.rules.reservations import GatedError
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.effects import list_effects
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision
from volsched.log.integrity.verify import verify
from volsched.questions.invariants import violations
from volsched.runtime import fault_points
from volsched.runtime.clock import SECOND
from volsched.runtime.writer import OverloadedError
from volsched.scheduling.pod_reservations import (
    NotToBeReservedError,
    ReservationRefused,
    ReservationRequest,
    Reserver,
    UnknownPodError,
    UnknownReservationError,
    reservation,
)

DISKS = [
    LOCAL,
    node("n0"),
    node("n1"),
    volume("n0-small", "2Gi", "n0"),
    volume("n0-large", "5Gi", "n0"),
    volume("n1-small", "2Gi", "n1"),
    claim("small", "1Gi"),
    claim("large", "4Gi"),
]
FOREIGN = pod("db", "small", "large") | {"spec": pod("db", "small", "large")["spec"] | {"schedulerName": "theirs"}}


class Scene(Stepped):
    """A system whose pods are reserved for by somebody else than its scheduler."""

    def __init__(self, database: Database, *more: dict[str, Any]) -> None:
        super().__init__(database, [*DISKS, *more])
        self.names = iter(f"r-{number}" for number in range(1, 100))
        self.reserver = self.started()
        self.settle()

    def started(self) -> Reserver:
        return Reserver(self.database, self.append, lambda: next(self.names))

    def append(self, command: Command) -> Done:
        return commit(self.database, command, now=self.now)

    def reserve(self, name: str = "db", seconds: int = 60, **asked: Any) -> str | ReservationRefused:
        wanted = ReservationRequest(pod=f"default/{name}", seconds=seconds, **asked)
        return self.reserver.reserve(wanted, actor="api/ada", now=self.now)

    def state(self, id_: str) -> tuple[str, list[str]]:
        with self.database.read() as connection:
            found = reservation(connection, id_)
        return found.state, [leg.state for leg in found.legs]

    def look_on(self) -> None:
        """The PV controller alone goes on."""
        self.system.catch_up(self.now)
        self.system.controller.step(self.now)

    def wait_out_leases(self) -> None:
        self.settle()
        self.now += 60 * SECOND
        self.settle()

    def assert_in_order(self, *, at_rest: bool = True) -> None:
        with self.database.read() as connection:
            assert violations(connection, at_rest=at_rest) == []
        assert verify(self.database).findings == []


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database, FOREIGN)


@pytest.fixture
def local(sqlite: Database) -> Scene:
    return Scene(sqlite, FOREIGN)


def test_what_is_reserved_is_held_and_nothing_is_written_until_it_is_confirmed(scene: Scene) -> None:
    assert scene.reserve() == "r-1"
    scene.create(claim("other", "4Gi"), pod("rival", "other"))
    scene.settle()
    assert scene.state("r-1") == ("reserved", ["assumed", "assumed"])
    assert list_effects(scene.database) == []
    assert scene.node_of("rival") is None, "the only large disk is held"
    assert "claimRef" not in (scene.cluster.get("PersistentVolume", "n0-large") or {})["spec"]
    scene.assert_in_order()
    scene.reserver.confirm("r-1", actor="api/ada", now=scene.now)
    scene.settle()
    assert scene.state("r-1") == ("committed", ["bound", "bound"])
    assert (scene.node_of("db"), scene.volume_of("large")) == ("n0", "n0-large")
    scene.reserver.confirm("r-1", actor="api/ada", now=scene.now)
    scene.assert_in_order()


@pytest.mark.parametrize("how", ["expiry", "cancel"])
def test_what_is_let_go_is_there_for_others_at_once(scene: Scene, how: str) -> None:
    scene.reserve(seconds=5)
    scene.create(claim("other", "4Gi"), pod("rival", "other"))
    scene.until(lambda: scene.bindings()[0].state == "reserved" and len(scene.bindings()) == 1)
    if how == "cancel":
        scene.reserver.cancel("r-1", reason="changed my mind", actor="api/ada")
        scene.settle()
    else:
        scene.wait_out_leases()
    assert scene.state("r-1") == ("rolled-back", ["voided", "voided"])
    assert scene.node_of("rival") == "n0"
    scene.assert_in_order()


def test_our_own_scheduler_leaves_a_reserved_pod_alone_until_the_lease_ends(sqlite: Database) -> None:
    scene = Scene(sqlite)
    scene.create(pod("db", "small", "large"))
    scene.reserve(seconds=30)
    for _ in range(50):
        scene.step(after=SECOND // 10)
    assert [row.state for row in scene.bindings()] == ["reserved"]
    scene.wait_out_leases()
    assert [row.state for row in scene.bindings()] == ["rolled-back", "committed"]
    assert scene.node_of("db") == "n0"
    scene.assert_in_order()


def test_a_renewed_lease_outlives_its_first_end(local: Scene) -> None:
    local.reserve(seconds=5)
    for _ in range(4):
        local.now += 3 * SECOND
        local.reserver.renew("r-1", seconds=5, actor="api/ada", now=local.now)
        local.step()
    assert local.state("r-1")[0] == "reserved"
    local.now += 5 * SECOND
    local.reserver.confirm("r-1", actor="api/ada", now=local.now)
    assert local.state("r-1")[0] == "rolled-back", "a lease that has ended is not confirmed, sweep or no sweep"
    local.assert_in_order()


@pytest.mark.parametrize(
    "what", ["Pod default/db", "PersistentVolumeClaim default/small", "PersistentVolume n0-large", "Node n0"]
)
def test_a_reservation_ends_with_what_it_needs(local: Scene, what: str) -> None:
    local.reserve()
    kind, _, key = what.partition(" ")
    local.cluster.delete(kind, key)
    local.settle()
    assert local.state("r-1")[0] == "rolled-back"
    local.assert_in_order()


def test_a_node_is_chosen_or_given_and_refusals_are_kept_once(local: Scene) -> None:
    refused = local.reserve(node="n1")
    assert isinstance(refused, ReservationRefused)
    assert (
        refused.message == "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )
    assert local.reserve(node="n1") == refused
    assert local.reserve(node="n0") == "r-2"
    local.create(pod("web"))
    with pytest.raises(UnknownPodError, match='node "n9" not found'):
        local.reserve("web", node="n9")


def test_the_same_key_gets_the_same_reservation_and_never_another_pods(local: Scene) -> None:
    assert local.reserve(key="once") == local.reserve(key="once") == "r-1"
    local.create(pod("web"))
    with pytest.raises(NotToBeReservedError, match='key "once" was used for pod "default/db"'):
        local.reserve("web", key="once")
    # What was asked for in another namespace is not told, and in nobody's way.
    elsewhere = ReservationRequest(pod="shop/web", key="once")
    with pytest.raises(UnknownPodError):
        local.reserver.reserve(elsewhere, actor="api/eve", now=local.now)


def test_one_pod_has_one_reservation(local: Scene) -> None:
    local.reserve()
    with pytest.raises(NotToBeReservedError, match=r"has binding r-1 already \(reserved\)"):
        local.reserve()


def test_what_is_no_reservation_cannot_be_confirmed(local: Scene) -> None:
    local.create(pod("web"))
    local.settle()
    (binding,) = local.bindings()
    for id_ in (binding.id, "r-9"):
        with pytest.raises(UnknownReservationError):
            local.reserver.confirm(id_, actor="api/ada", now=local.now)


def test_a_gated_pod_is_held_for_and_bound_once_its_gates_are_gone(local: Scene) -> None:
    gated = pod("later", "small")
    gated["spec"]["schedulingGates"] = [{"name": "quota"}]
    local.create(gated)
    local.reserve("later")
    with pytest.raises(GatedError):
        local.reserver.confirm("r-1", actor="api/ada", now=local.now)
    held = local.cluster.get("Pod", "default/later") or {}
    del held["spec"]["schedulingGates"]
    local.cluster.update("Pod", held)
    local.reserver.confirm("r-1", actor="api/ada", now=local.now)
    local.settle()
    assert local.state("r-1")[0] == "committed"


def test_what_the_same_actor_wrote_since_makes_a_decision_worthless(local: Scene) -> None:
    """An API's user writes objects and reserves under one name: his own cordon must be seen as well."""
    local.reserver.picture.catch_up(local.now)
    decided = local.reserver.append
    cordoned: list[bool] = []

    def cordon_first(command: Command) -> Done:
        if not cordoned:
            cordoned.append(True)
            event = NewEvent(
                stream="node/n0", type="NodeChanged", data={"patch": {"spec": {"unschedulable": True}}}
            )
            cordon = Command(
                actor=command.actor, streams=(event.stream,), decide=lambda _: Decision(events=(event,))
            )
            local.append(cordon)
        return decided(command)

    local.reserver.append = cordon_first
    refused = local.reserve()
    assert isinstance(refused, ReservationRefused)
    assert "node(s) were unschedulable" in refused.message


POINTS = ("commit.before", "commit.after")


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("url", "act"),
    [("sqlite", it) for it in ("reserve", "confirm", "renew", "cancel")] + [("postgres", "confirm")],
    indirect=["url"],
)
def test_a_process_that_dies_in_any_act_leaves_nothing_behind(scene: Scene, act: str, point: str) -> None:
    if act != "reserve":
        scene.reserve(seconds=20, key="k")
    acts: dict[str, Callable[[], object]] = {
        "reserve": lambda: scene.reserve(seconds=20, key="k"),
        "confirm": lambda: scene.reserver.confirm("r-1", actor="api/ada", now=scene.now),
        "renew": lambda: scene.reserver.renew("r-1", seconds=9, actor="api/ada", now=scene.now),
        "cancel": lambda: scene.reserver.cancel("r-1", reason="so", actor="api/ada"),
    }

    def crash(reached: str) -> None:
        if reached == point:
            raise fault_points.FaultError

    fault_points.arm(crash, drill=True)
    with pytest.raises(fault_points.FaultError):
        acts[act]()
    fault_points.arm(None, drill=False)
    scene.reserver = scene.started()
    recover(scene.database, owner="w2", now=scene.now)
    scene.assert_in_order(at_rest=False)
    # Said again by whoever did not hear an answer, it is done once.
    if act == "reserve":
        assert scene.reserve(seconds=20, key="k") in ("r-1", "r-2")
    else:
        acts[act]()
    assert len(scene.bindings()) == 1
    scene.wait_out_leases()
    assert scene.bindings()[0].state == ("committed" if act == "confirm" else "rolled-back")
    scene.assert_in_order()


def test_what_could_not_be_written_is_not_held_in_memory_either(local: Scene) -> None:
    """A writer that has too much to do, or a database that is away: the one who asks comes back."""

    def refuse(_: Command) -> Done:
        local.reserver.append = local.append
        raise OverloadedError("too many writes are waiting")

    local.reserver.append = refuse
    with pytest.raises(OverloadedError):
        local.reserve()
    assert local.reserve() == "r-2"


def test_nothing_is_reserved_of_a_volume_that_no_controller_has_looked_at(sqlite: Database) -> None:
    """It is about to be written, and what is held would not be what it was."""
    theirs = {"spec": pod("later", "more")["spec"] | {"schedulerName": "theirs"}}
    scene = Scene(sqlite, claim("more", "30Gi"), pod("later", "more") | theirs)
    scene.create(volume("late", "30Gi", "n1"))
    refused = scene.reserve("later")
    assert isinstance(refused, ReservationRefused)
    assert refused.message == 'no PV controller has synced persistentvolume "late" yet; retry'
    scene.look_on()
    assert isinstance(scene.reserve("later"), str)
