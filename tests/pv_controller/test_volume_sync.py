"""One look at a volume: every row, and never a release on a cache alone."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    DISK,
    KEY,
    RULES,
    World,
    bound_pvc,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import BOUND_BY_CONTROLLER, MIGRATED_TO, PV_CONTROLLER_FINALIZER
from volsched.pv_controller.rules import CLAIM, PARITY, VOLUME, ControllerRules, LiveGet

WARNING = "Warning"
PHASES = ("", "Pending", "Available", "Bound", "Released", "Failed")


def live_gets(after: World) -> list[str]:
    return [asked.key for asked in after.requests if isinstance(asked, LiveGet) and asked.kind == CLAIM]


@row("9.6 V0")
def test_upkeep_comes_first_in_one_write_and_its_error_ends_the_sync() -> None:
    given = provisioned_pv(
        "pv", by="kubernetes.io/aws-ebs", finalizers=(PV_CONTROLLER_FINALIZER,), phase="Pending"
    )
    after = world(given).sync_volume()
    assert after.writes == [(VOLUME, False), (VOLUME, True)]
    assert after.volume().meta.annotations[MIGRATED_TO] == "ebs.csi.aws.com"
    assert after.volume().meta.finalizers == ()
    failed = world(given).fail("update", "persistentvolumes").sync_volume()
    assert len(failed.errors) == 1
    assert failed.volume().phase == "Pending"


@row("9.6 V1")
@pytest.mark.parametrize("phase", PHASES)
def test_an_unclaimed_volume_is_available(phase: str) -> None:
    after = world(pv(phase=phase)).sync_volume()
    assert after.volume().phase == "Available"
    assert len(after.writes) == (0 if phase == "Available" else 1)


@row("9.6 V1")
def test_an_available_volume_keeps_no_message() -> None:
    _, manifest = pv(phase="Failed")
    manifest["status"]["message"] = "Recycle failed"
    after = world((VOLUME, manifest)).sync_volume()
    assert after.server.objects[VOLUME, "pv"]["status"] == {"phase": "Available"}


@row("9.6 V2")
@pytest.mark.parametrize("phase", PHASES)
def test_a_volume_reserved_by_name_is_available_whether_the_claim_exists_or_not(phase: str) -> None:
    after = world(pv(phase=phase, ref=ref(uid=""))).sync_volume()
    assert after.volume().phase == "Available"
    assert after.volume().claim_ref.uid == ""
    assert live_gets(after) == []


def unseen(*objects: Any, rules: ControllerRules = RULES) -> World:
    given = world(*objects, rules=rules)
    given.unseen.add((CLAIM, KEY))
    return given


@row("9.6 V3")
@pytest.mark.parametrize("phase", ["Pending", "Available", "Bound"])
@pytest.mark.parametrize("rules", [RULES, PARITY])
def test_a_claim_that_only_the_store_knows_keeps_its_volume(phase: str, rules: ControllerRules) -> None:
    after = unseen(bound_pvc(), sc(), pv(phase=phase, ref=ref(), policy="Delete"), rules=rules).sync_volume()
    assert after.volume().phase == "Bound"
    assert live_gets(after) == [KEY]
    assert after.started == []


@row("9.6 V3")
@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_a_released_volume_is_looked_up_once_more_by_us_and_not_by_the_reference(phase: str) -> None:
    objects = (bound_pvc(), sc(), pv(phase=phase, ref=ref(), policy="Delete"))
    ours = unseen(*objects).sync_volume()
    assert ours.volume().phase == "Bound"
    assert ours.calls == []
    reference = unseen(*objects, rules=PARITY).sync_volume()
    assert live_gets(reference) == []
    assert reference.started == ["delete-pv[uid-pv]"]


@row("9.6 V3")
def test_a_store_that_does_not_answer_releases_nothing() -> None:
    after = (
        world(pv(phase="Bound", ref=ref(), policy="Delete")).fail("get", "persistentvolumeclaims").sync_volume()
    )
    assert after.volume().phase == "Bound"
    assert len(after.errors) == 1


@row("9.6 V4")
def test_a_namesake_is_asked_for_in_the_store_and_then_counts_as_missing() -> None:
    after = world(pvc(uid="uid-new"), sc(), pv(phase="Bound", ref=ref(uid="uid-old"))).sync_volume()
    assert live_gets(after) == [KEY]
    assert after.volume().phase == "Released"


@row("9.6 V4")
def test_a_stale_cache_of_the_claim_releases_nothing() -> None:
    """The cache still has the deleted claim; the volume was provisioned for the new one."""
    given = world(pvc(uid="uid-old"), sc(), pv(phase="Pending", ref=ref()))

    def replaced(after: World, request: Any) -> None:
        if isinstance(request, LiveGet):
            after.server.load(*pvc())

    given.before_answer = replaced
    assert given.sync_volume().enqueued == [KEY]
    assert given.volume().phase == "Pending"


@row("9.6 V5")
@pytest.mark.parametrize("phase", PHASES)
def test_a_volume_without_its_claim_is_released_but_failed_stays(phase: str) -> None:
    after = world(pv(phase=phase, ref=ref())).sync_volume()
    assert after.volume().phase == ("Failed" if phase == "Failed" else "Released")
    assert after.volume().claim_ref.uid == "uid-data"


@row("9.6 V5")
@pytest.mark.parametrize("phase", ["Released", "Failed", "Bound"])
def test_reclaiming_is_tried_at_every_sync(phase: str) -> None:
    after = world(pv(phase=phase, ref=ref(), policy="Recycle"))
    after.run_operations = False
    assert after.sync_volume().started == ["recycle-pv[uid-pv]"]


@row("9.6 V6")
def test_an_unbound_claim_of_another_mode_is_reported_and_so_is_the_volume() -> None:
    after = world(pvc(), sc(), pv(phase="Bound", ref=ref(), volumeMode="Block")).sync_volume()
    assert after.notices == [(WARNING, "VolumeMismatch")] * 2
    assert after.messages == [
        'Cannot bind PersistentVolume to requested PersistentVolumeClaim "data" due to incompatible volumeMode.',
        'Cannot bind PersistentVolume "pv" to requested PersistentVolumeClaim due to incompatible volumeMode.',
    ]
    assert (after.enqueued, after.writes) == ([], [])


@row("9.6 V7")
@pytest.mark.parametrize("phase", PHASES)
def test_the_claim_of_a_half_done_binding_is_synced_and_the_phase_left_alone(phase: str) -> None:
    after = world(pvc(), sc(), pv(phase=phase, ref=ref())).sync_volume()
    assert (after.enqueued, after.writes, after.notices) == ([KEY], [], [])


@row("9.6 V8")
@pytest.mark.parametrize("phase", PHASES)
def test_a_volume_whose_claim_points_back_is_bound(phase: str) -> None:
    after = world(pvc(volume="pv"), sc(), pv(phase=phase, ref=ref(), volumeMode="Block")).sync_volume()
    assert after.volume().phase == "Bound"
    assert after.notices == []


@row("9.6 V9")
@pytest.mark.parametrize(
    ("phase", "then"), [("Bound", "Released"), ("Released", "Released"), ("Failed", "Failed")]
)
def test_a_surplus_volume_that_was_provisioned_is_deleted(phase: str, then: str) -> None:
    given = world(bound_pvc("other"), sc(), provisioned_pv("pv", phase=phase, ref=ref()))
    given.run_operations = False
    assert given.sync_volume().volume().phase == then
    assert given.started == ["delete-pv[uid-pv]"]
    assert given.volume().claim_ref is not None


@row("9.6 V9", "9.6 V10")
@pytest.mark.parametrize(
    ("surplus", "deleted"),
    [
        (provisioned_pv("pv", phase="Bound", ref=ref()), True),
        (provisioned_pv("pv", phase="Bound", ref=ref(), policy="Retain"), False),
        (pv(phase="Bound", ref=ref(), policy="Delete"), False),
    ],
    ids=["provisioned, delete", "provisioned, retain", "static, delete"],
)
def test_only_a_provisioned_surplus_volume_with_policy_delete_is_deleted(surplus: Any, deleted: bool) -> None:
    surplus[1]["metadata"]["annotations"] |= {BOUND_BY_CONTROLLER: "yes"}
    after = world(bound_pvc("other"), sc(), surplus).sync_volume()
    assert after.has(VOLUME, "pv") is not deleted
    assert [call for call, _, _ in after.calls] == (["delete"] if deleted else [])
    if not deleted:
        assert (after.volume().phase, after.volume().claim_ref) == ("Available", None)


@row("9.6 V9")
def test_a_surplus_volume_of_an_external_provisioner_is_left_to_it() -> None:
    after = world(bound_pvc("other"), sc(), provisioned_pv("pv", by="csi.example.com", phase="Bound", ref=ref()))
    assert after.sync_volume().volume().phase == "Released"
    assert after.calls == []
    assert after.errors == []


def test_the_plugin_of_these_tests_is_one_of_ours() -> None:
    assert RULES.is_in_tree(DISK.name)
    assert not PARITY.is_in_tree(DISK.name)
