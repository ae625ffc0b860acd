"""Bindings on a foreign cluster, where every call may be lost, late or refused and others write too."""

import pytest
from sqlalchemy import select

from tests.support.foreign import change, simulated
from tests.support.foreign_scene import CLAIM, LEASE, NODE, POD, VOLUME, Once, Scene
from tests.support.port_manifests import claim
from volsched.binding.executor import Executor
from volsched.binding.rules.reasons import (
    DEADLINE_EXCEEDED,
    HOLDS_DATA,
    KEPT,
    NOT_OURS,
    STILL_PROVISIONING,
)
from volsched.binding.rules.safe_release import REASONS, SafeRow
from volsched.cluster.foreign_api import ABLE
from volsched.cluster.port import KUBERNETES, Capabilities, Permission, UnansweredError
from volsched.cluster.simulated import Call, ClusterFaults, Fate
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, HOSTNAME, ROLLBACK, SELECTED_NODE
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import FIRST_BACKOFF_US
from volsched.runtime.clock import SECOND

ONE, TWO = {"data": "pv-1"}, {"data": "pv-1", "logs": "pv-2"}


# Everything goes well ------------------------------------------------------------------------------------


def test_a_binding_of_static_and_provisioned_legs_is_carried_out_and_committed(database: Database) -> None:
    scene = Scene(database, simulated(), {"data": "pv-1", "scratch": None}).plan().settle()
    assert scene.binding().state == "waiting"
    assert scene.annotations(CLAIM, "db/scratch")[SELECTED_NODE] == "n1"
    scene.complete_all()
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("committed", ["bound", "bound"])
    assert scene.node_of_pod() == "n1"
    written = [call for call in scene.cluster.calls if call.writes]
    assert written == [
        Call("patch status", POD, "db/app"),
        Call("patch", VOLUME, "pv-1"),
        Call("patch", CLAIM, "db/scratch"),
        Call("bind", POD, "db/app"),
    ]
    assert not [call for call in scene.cluster.calls if call.verb == "get"]
    assert scene.queued() == []


def test_the_observation_that_completes_the_last_leg_moves_the_binding_on_at_once(database: Database) -> None:
    scene = Scene(database, simulated(), TWO).plan().settle()
    scene.complete("data")
    scene.observe()
    assert scene.phases() == ["bound", "written"]
    scene.complete("logs")
    scene.observe()
    assert scene.binding().state == "committing"
    assert scene.queued() == ["b1/pod/bind_pod"]


def test_a_watch_that_is_behind_our_own_write_is_waited_for(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan()
    scene.cluster.faults = ClusterFaults(lag=1_000)
    scene.work()
    scene.api.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}})
    scene.observe()
    assert "claimRef" not in scene.view("volume/pv-1")["spec"]
    assert scene.binding().state == "waiting"
    scene.cluster.faults = ClusterFaults()
    scene.complete_all()
    scene.settle()
    assert scene.binding().state == "committed"


# Calls go wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.FAILED, Fate.CONFLICT])
@pytest.mark.parametrize(("verb", "key"), [("patch", "pv-1"), ("patch", "db/scratch"), ("bind", "db/app")])
def test_one_call_that_goes_wrong_changes_nothing_in_the_end(
    database: Database, fate: Fate, verb: str, key: str
) -> None:
    scene = Scene(database, simulated(), {"data": "pv-1", "scratch": None})
    scene.cluster.before = Once(fate, verb, key)
    scene.plan().settle()
    scene.complete_all()
    scene.settle()
    assert scene.binding().state == "committed"
    assert scene.node_of_pod() == "n1"


@pytest.mark.parametrize(("verb", "key"), [("patch", "pv-1"), ("bind", "db/app")])
def test_a_write_whose_answer_was_lost_is_found_and_not_repeated(database: Database, verb: str, key: str) -> None:
    scene = Scene(database, simulated(), ONE)
    scene.cluster.before = Once(Fate.LOST, verb, key)
    scene.plan().settle()
    scene.complete_all()
    scene.settle()
    assert scene.binding().state == "committed"
    assert sum(call.verb == verb and call.key == key for call in scene.cluster.calls) == 1


def parked_errors(database: Database) -> list[tuple[str, int, str]]:
    effects = tables.effects
    with database.read() as connection:
        rows = connection.execute(select(effects.c.queue, effects.c.due, effects.c.error))
        return [(row.queue, row.due, row.error) for row in rows]


def test_a_permission_that_is_missing_is_named_and_not_asked_for_in_a_circle(database: Database) -> None:
    cluster = simulated()
    scene = Scene(database, cluster, ONE).plan().nominate()
    cluster.api.forbidden.add(Permission("patch", VOLUME))
    cluster.calls.clear()
    assert scene.executor.step("prebind", scene.now).retried == 1
    assert [call.verb for call in cluster.calls if call.writes] == ["patch"]
    ((_, _, error),) = parked_errors(database)
    assert "we may not patch PersistentVolume" in error
    cluster.api.forbidden.clear()
    scene.settle()
    scene.complete_all()
    assert scene.settle().binding().state == "committed"


@pytest.mark.parametrize(
    ("asked", "waited"), [(42.0, 42 * SECOND), (0.001, FIRST_BACKOFF_US), (None, FIRST_BACKOFF_US)]
)
def test_a_cluster_that_asks_to_be_left_alone_is_left_alone_for_so_long(
    database: Database, asked: float | None, waited: int
) -> None:
    scene = Scene(database, simulated(), ONE).plan()

    def overloaded(call: Call) -> None:
        if call.writes:
            raise UnansweredError("too many requests", retry_after=asked)

    scene.cluster.before = overloaded
    assert scene.executor.step("prebind", scene.now).retried == 1
    ((_, due, _),) = parked_errors(database)
    assert due - scene.now == waited


def test_a_worker_that_was_overtaken_records_nothing(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan().nominate()
    other = Executor(database, scene.cluster, "worker-2", LEASE)

    def sleep_past_the_lease(call: Call) -> None:
        if call == Call("patch", VOLUME, "pv-1"):
            scene.cluster.before = None
            scene.pass_lease()
            scene.work(other)

    scene.cluster.before = sleep_past_the_lease
    progress = scene.executor.step("prebind", scene.now)
    assert (progress.done, progress.deposed) == (0, 1)
    assert scene.phases() == ["written"]
    scene.complete_all()
    assert scene.settle().binding().state == "committed"


# Others write --------------------------------------------------------------------------------------------


def test_a_volume_taken_by_somebody_else_between_plan_and_prebind_rolls_everything_back(
    database: Database,
) -> None:
    scene = Scene(database, simulated(), TWO)
    scene.api.create(CLAIM, claim("theirs"))
    scene.observe()

    def take(call: Call) -> None:
        if call == Call("patch", VOLUME, "pv-2"):
            scene.cluster.before = None
            scene.take("pv-2", "theirs")

    scene.cluster.before = take
    scene.plan().settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["released", "voided"])
    assert "Conflict" in (scene.binding().reason or "")
    assert scene.is_untouched("data", "pv-1")
    assert scene.claim_of("pv-2") == "theirs"
    assert BINDING_STAMP not in scene.annotations(VOLUME, "pv-2")


def test_a_volume_that_was_taken_from_us_with_our_stamp_on_is_not_taken_back(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan()
    scene.work()
    scene.api.create(CLAIM, claim("theirs"))
    scene.take("pv-1", "theirs")
    scene.settle()
    assert scene.binding().state == "rolled-back"
    assert scene.claim_of("pv-1") == "theirs"
    assert (scene.leg().state, scene.leg().reason) == ("retained", NOT_OURS)


def test_a_volume_that_was_freed_with_our_stamp_on_loses_the_stamp_too(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan()
    scene.work()
    freed = {
        "spec": {"claimRef": None},
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": None}},
    }
    change(scene.api, VOLUME, "pv-1", freed)
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["released"])
    assert 'ClaimRef got reset for pv "pv-1"' in (scene.binding().reason or "")
    assert scene.is_untouched("data", "pv-1")


def test_a_claim_that_was_bound_to_another_volume_leaves_ours_free(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan()
    scene.work()
    scene.add_volume("pv-9")
    scene.take("pv-9", "data")
    scene.complete("data", "pv-9", data_state="Dirty")
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["released"])
    assert scene.claim_of("pv-1") is None
    assert (scene.claim_of("pv-9"), ROLLBACK in scene.annotations(CLAIM, "db/data")) == ("data", False)


def test_a_pod_that_is_deleted_midway_rolls_everything_back(database: Database) -> None:
    scene = Scene(database, simulated(), TWO).plan().settle()
    scene.api.delete(POD, "db/app")
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["released", "released"])
    assert "pod does not exist any more" in (scene.binding().reason or "")
    assert scene.is_untouched("data", "pv-1")
    assert scene.is_untouched("logs", "pv-2")


def test_a_node_that_loses_its_label_midway_rolls_everything_back(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan().settle()
    change(scene.api, NODE, "n1", {"metadata": {"labels": {HOSTNAME: None}}})
    scene.settle()
    assert scene.binding().state == "rolled-back"
    assert 'pv "pv-1" node affinity doesn\'t match node "n1"' in (scene.binding().reason or "")
    assert scene.is_untouched("data", "pv-1")


# What is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data_state", "reason"), [("Clean", KEPT), ("Dirty", HOLDS_DATA), (None, HOLDS_DATA)])
def test_a_claim_that_was_bound_before_the_failure_keeps_its_volume(
    database: Database, data_state: str | None, reason: str
) -> None:
    scene = Scene(database, simulated(), TWO).plan().settle()
    scene.complete("data", data_state=data_state)
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert (scene.binding().state, scene.binding().reason) == ("rolled-back", DEADLINE_EXCEEDED)
    assert scene.phases() == ["retained", "released"]
    assert scene.leg().reason == reason
    assert scene.claim_of("pv-1") == "data"
    assert BIND_COMPLETED in scene.annotations(CLAIM, "db/data")
    assert ROLLBACK not in scene.annotations(CLAIM, "db/data")
    assert scene.is_untouched("logs", "pv-2")


def test_where_nobody_marks_claims_dirty_a_bound_one_counts_as_dirty(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=KUBERNETES), ONE).plan().settle()
    scene.complete("data", data_state="Clean")
    scene.api.delete(POD, "db/app")
    scene.settle()
    assert (scene.leg().state, scene.leg().reason) == ("retained", REASONS[SafeRow.BOUND])


def test_a_claim_that_names_our_volume_is_freed_of_it_where_the_cluster_allows(database: Database) -> None:
    scene = Scene(database, simulated(), ONE).plan().settle()
    scene.start_binding("data", "pv-1")
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert scene.phases() == ["released"]
    assert scene.is_untouched("data", "pv-1")


def test_a_claim_that_names_our_volume_is_retained_where_the_cluster_cannot_unbind(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=KUBERNETES), ONE).plan().settle()
    scene.start_binding("data", "pv-1")
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert (scene.binding().state, scene.leg().state, scene.leg().reason) == (
        "rolled-back", "retained", REASONS[SafeRow.NAMED],
    )  # fmt: skip
    assert scene.claim_of("pv-1") == "data"
    assert ROLLBACK not in scene.annotations(CLAIM, "db/data")


def test_a_claim_that_was_never_named_is_released_even_where_the_cluster_cannot_unbind(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=KUBERNETES), ONE).plan().settle()
    scene.pass_deadline()
    scene.settle()
    assert scene.phases() == ["released"]
    assert scene.is_untouched("data", "pv-1")


@pytest.mark.parametrize("capabilities", [ABLE, KUBERNETES])
def test_a_claim_completed_while_it_was_being_released_is_kept_without_the_mark(
    database: Database, capabilities: Capabilities
) -> None:
    scene = Scene(database, simulated(capabilities=capabilities), ONE).plan().settle()

    def complete(call: Call) -> None:
        if call == Call("patch", VOLUME, "pv-1"):
            scene.cluster.before = None
            scene.complete("data")

    scene.pass_deadline()
    scene.cluster.before = complete
    scene.settle()
    reason = KEPT if capabilities.has_data_state else REASONS[SafeRow.BOUND]
    assert (scene.leg().state, scene.leg().reason) == ("retained", reason)
    assert scene.claim_of("pv-1") == "data"
    assert ROLLBACK not in scene.annotations(CLAIM, "db/data")


def test_a_volume_that_a_controller_of_others_is_completing_is_not_pulled_away(database: Database) -> None:
    """It calls the volume bound first and writes the claim next: freed in between, the claim would be lost."""
    scene = Scene(database, simulated(capabilities=KUBERNETES), ONE).plan().settle()
    change(scene.api, VOLUME, "pv-1", {"status": {"phase": "Bound"}}, status=True)
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert (scene.leg().state, scene.leg().reason) == ("retained", REASONS[SafeRow.HALF_BOUND])
    assert scene.claim_of("pv-1") == "data"


def test_a_provisioner_that_answers_after_the_timeout_serves_the_claim_it_worked_for(database: Database) -> None:
    scene = Scene(database, simulated(), {"scratch": None}).plan().settle()
    scene.start_provisioning("scratch")
    scene.settle()
    scene.pass_deadline()
    scene.settle()
    assert (scene.binding().state, scene.binding().reason) == ("rolled-back", DEADLINE_EXCEEDED)
    assert (scene.leg().state, scene.leg().reason) == ("retained", STILL_PROVISIONING)
    made = scene.provision("scratch")
    scene.settle()
    assert scene.claim_of(made) == "scratch"
    assert scene.view("claim/db/scratch")["spec"]["volumeName"] == made
    assert scene.annotations(CLAIM, "db/scratch")[SELECTED_NODE] == "n1"
    assert (scene.phases(), scene.queued()) == (["retained"], [])
