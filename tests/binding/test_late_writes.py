"""Writes of ours that reach a foreign cluster too late are found and undone, and nothing else is."""

from dataclasses import replace

import pytest

from tests.support.foreign import change, simulated
from tests.support.foreign_scene import CLAIM, LEASE, NODE, POD, VOLUME, Once, Scene
from volsched.binding.executor import Executor
from volsched.binding.rules.reasons import KEPT, STILL_PROVISIONING, UNDONE
from volsched.cluster.foreign_api import ABLE
from volsched.cluster.port import KUBERNETES, CallRefusedError
from volsched.cluster.simulated import Call, Fate
from volsched.kube.meta import BINDING_STAMP, ROLLBACK, SELECTED_NODE
from volsched.log.database import Database
from volsched.log.reads.tail import read_head

ONE, TWO = {"data": "pv-1"}, {"data": "pv-1", "logs": "pv-2"}
UNFENCED = replace(ABLE, can_fence=False)
"""With fences no write is ever late: the last tests here. This is the second line of defence."""


def rolled_back_with_a_write_under_way(database: Database, legs: dict[str, str | None], key: str) -> Scene:
    """The first write of the leg is still on its way when its leg has long been voided."""
    scene = Scene(database, simulated(slow_for=None, capabilities=UNFENCED), legs)
    scene.cluster.before = Once(Fate.SLOW, "patch", key)
    scene.plan().work()
    scene.api.delete(POD, "db/app")
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["voided"])
    return scene


def test_a_volume_that_was_written_after_its_leg_was_voided_is_freed_again(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"data": "pv-1"}, "pv-1")
    scene.cluster.land()
    assert scene.claim_of("pv-1") == "data"
    scene.settle()
    assert scene.is_untouched("data", "pv-1")
    assert (scene.binding().state, scene.leg().state, scene.leg().reason) == ("rolled-back", "released", UNDONE)
    assert scene.queued() == []


def test_a_node_that_was_selected_after_the_leg_was_voided_is_deselected(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"scratch": None}, "db/scratch")
    scene.cluster.land()
    assert scene.annotations(CLAIM, "db/scratch")[SELECTED_NODE] == "n1"
    scene.settle()
    assert scene.annotations(CLAIM, "db/scratch") == {}
    assert (scene.leg().state, scene.leg().reason) == ("released", UNDONE)


def test_a_stray_on_a_provisioned_claim_is_retained_while_a_provisioner_works(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"scratch": None}, "db/scratch")
    scene.cluster.land()
    scene.start_provisioning("scratch")
    scene.settle()
    assert (scene.leg().state, scene.leg().reason) == ("retained", STILL_PROVISIONING)


def test_a_stray_that_the_controller_completed_first_is_kept_and_its_leg_says_so(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"data": "pv-1"}, "pv-1")
    scene.cluster.land()
    scene.complete("data")
    scene.settle()
    assert (scene.leg().state, scene.leg().reason) == ("retained", KEPT)
    assert scene.claim_of("pv-1") == "data"


def test_a_stray_does_not_touch_a_claim_that_is_bound_elsewhere_by_now(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"data": "pv-1"}, "pv-1")
    scene.add_volume("pv-9")
    scene.take("pv-9", "data")
    scene.complete("data", "pv-9", data_state="Dirty")
    before = scene.api.get(CLAIM, "db/data")
    scene.cluster.land()
    scene.settle()
    assert scene.claim_of("pv-1") is None
    assert scene.api.get(CLAIM, "db/data") == before


def test_a_stray_that_lands_between_the_last_look_and_the_record_is_undone(database: Database) -> None:
    """Mirrored before the leg is voided, so that the mirror alone could not know it for a stray."""
    scene = Scene(database, simulated(slow_for=None, capabilities=UNFENCED), ONE)
    scene.cluster.before = Once(Fate.SLOW, "patch", "pv-1")
    scene.plan().work()
    scene.api.delete(POD, "db/app")
    scene.observe()
    scene.pass_lease()

    def land(call: Call) -> None:
        if call == Call("get", VOLUME, "pv-1"):
            scene.cluster.after = None
            scene.cluster.land()
            scene.observe()

    scene.cluster.after = land
    scene.executor.step("prebind", scene.now)
    assert (scene.phases(), [key[:9] for key in scene.queued()]) == (["voided"], ["b1/0/undo"])
    scene.settle()
    assert scene.is_untouched("data", "pv-1")


def test_a_worker_that_wakes_after_its_lease_and_after_the_end_is_undone(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=UNFENCED), ONE).plan().nominate()
    other = Executor(database, scene.cluster, "worker-2", LEASE)

    def sleep_until_all_is_over(call: Call) -> None:
        if call == Call("patch", VOLUME, "pv-1"):
            scene.cluster.before = None
            scene.api.delete(POD, "db/app")
            scene.observe()
            scene.pass_lease()
            scene.work(other)
            assert scene.binding().state == "rolled-back"

    scene.cluster.before = sleep_until_all_is_over
    assert scene.executor.step("prebind", scene.now).deposed == 1
    assert scene.claim_of("pv-1") == "data"
    scene.settle()
    assert scene.is_untouched("data", "pv-1")


def test_the_mark_of_a_release_that_lands_after_its_end_is_taken_off(database: Database) -> None:
    scene = Scene(database, simulated(slow_for=None, capabilities=UNFENCED), ONE).plan().settle()
    scene.api.delete(POD, "db/app")
    scene.observe()
    scene.cluster.before = Once(Fate.SLOW, "patch", "db/data")
    scene.work()
    change(scene.api, VOLUME, "pv-1", {"spec": {"claimRef": None}, "metadata": {"annotations": None}})
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["released"])
    scene.cluster.land()
    assert scene.annotations(CLAIM, "db/data") == {ROLLBACK: "b1"}
    scene.settle()
    assert scene.is_untouched("data", "pv-1")


def test_a_release_that_is_observed_late_is_not_taken_for_a_stray(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=UNFENCED), ONE).plan().settle()
    scene.api.delete(POD, "db/app")
    scene.observe()
    scene.work()
    assert scene.binding().state == "rolled-back"
    scene.observe()
    assert (scene.queued(), scene.phases()) == ([], ["released"])


def test_a_stray_found_only_by_listing_again_is_undone(database: Database) -> None:
    scene = rolled_back_with_a_write_under_way(database, {"data": "pv-1"}, "pv-1")
    scene.cluster.land()
    scene.api.forget_history()
    scene.settle()
    assert scene.is_untouched("data", "pv-1")


def test_a_stamp_of_a_binding_that_is_not_ours_is_left_alone(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=UNFENCED), ONE)
    scene.take("pv-1", "data")
    change(scene.api, VOLUME, "pv-1", {"metadata": {"annotations": {BINDING_STAMP: "of another installation"}}})
    scene.settle()
    assert (scene.claim_of("pv-1"), scene.queued()) == ("data", [])


def test_what_was_committed_or_retained_is_no_stray(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=UNFENCED), TWO).plan().settle()
    scene.complete_all()
    scene.settle()
    assert scene.binding().state == "committed"
    change(scene.api, VOLUME, "pv-1", {"metadata": {"labels": {"a": "b"}}})
    scene.settle()
    assert (scene.claim_of("pv-1"), scene.queued()) == ("data", [])


# With fences -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("legs", "key"), [(ONE, "pv-1"), ({"scratch": None}, "db/scratch")])
def test_a_write_that_is_under_way_when_its_leg_is_voided_can_never_land(
    database: Database, legs: dict[str, str | None], key: str
) -> None:
    scene = Scene(database, simulated(slow_for=None, capabilities=KUBERNETES), legs)
    scene.cluster.before = Once(Fate.SLOW, "patch", key)
    scene.plan().work()
    scene.api.delete(POD, "db/app")
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["voided"])
    kind = CLAIM if "/" in key else VOLUME
    fenced = scene.api.get(kind, key)
    assert scene.cluster.land() == 1
    assert scene.api.get(kind, key) == fenced
    assert BINDING_STAMP not in scene.annotations(kind, key)


def test_a_binding_of_the_pod_that_is_under_way_when_it_is_given_up_can_never_land(database: Database) -> None:
    scene = Scene(database, simulated(slow_for=None, capabilities=KUBERNETES), ONE).plan().settle()
    scene.complete("data")
    scene.observe()
    scene.cluster.before = Once(Fate.SLOW, "bind", "db/app")
    scene.work()
    change(scene.api, VOLUME, "pv-1", {"spec": {"claimRef": {"uid": "uid-of-another"}}})
    scene.settle()
    assert scene.binding().state == "rolled-back"
    assert scene.cluster.land() == 1
    assert scene.node_of_pod() is None


def test_a_store_restored_from_a_backup_fences_what_its_lost_process_may_have_sent(database: Database) -> None:
    """The backup knows of no attempt, and the write of the process that is gone is still on its way."""
    scene = Scene(database, simulated(slow_for=None, capabilities=KUBERNETES), ONE).plan().nominate()
    sent = scene.api.get(VOLUME, "pv-1") or {}
    scene.api.delete(POD, "db/app")
    with database.read() as connection:
        began_at = read_head(connection).position
    scene.observe()
    scene.executor = replace(scene.executor, began_at=began_at)
    scene.settle()
    assert (scene.binding().state, scene.phases()) == ("rolled-back", ["voided"])
    late = {"metadata": {"annotations": {BINDING_STAMP: "b1"}}}
    with pytest.raises(CallRefusedError):
        scene.api.patch(VOLUME, "pv-1", late, version=sent["metadata"]["resourceVersion"])


def test_a_nomination_that_is_under_way_when_its_binding_ends_can_never_land(database: Database) -> None:
    scene = Scene(database, simulated(slow_for=None, capabilities=KUBERNETES), ONE)
    scene.cluster.before = Once(Fate.SLOW, "patch status", "db/app")
    scene.plan().work()
    scene.api.delete(NODE, "n1")
    scene.settle()
    assert scene.binding().state == "rolled-back"
    assert scene.cluster.land() == 1
    assert "nominatedNodeName" not in (scene.api.get(POD, "db/app") or {}).get("status", {})


def test_a_nomination_ends_with_the_binding_that_is_rolled_back(database: Database) -> None:
    scene = Scene(database, simulated(capabilities=KUBERNETES), ONE).plan().settle()
    assert (scene.api.get(POD, "db/app") or {})["status"]["nominatedNodeName"] == "n1"
    scene.pass_deadline()
    scene.settle()
    assert "nominatedNodeName" not in (scene.api.get(POD, "db/app") or {})["status"]
    assert scene.is_untouched("data", "pv-1")
