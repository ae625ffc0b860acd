"""What becomes of volumes whose claim is gone, and who guards their deletion."""

from dataclasses import replace
from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    DISK,
    KEY,
    RULES,
    Object,
    World,
    bound_pvc,
    pod,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import (
    BOUND_BY_CONTROLLER,
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    PV_PROTECTION,
)
from volsched.pv_controller.rules import CLAIM, PARITY, VOLUME, DeleteAsset, LiveGet, Request

NORMAL, WARNING = "Normal", "Warning"
BY_US = {BOUND_BY_CONTROLLER: "yes"}


def left(policy: str, **kw: Any) -> Object:
    """A volume whose claim is gone."""
    return pv(**{"policy": policy, "phase": "Released", "ref": ref(), "notes": BY_US, **kw})


@row("9.10 retain")
def test_a_retained_volume_stays_as_it_is() -> None:
    after = world(left("Retain")).sync_volume()
    assert (after.writes, after.started, after.calls) == ([], [], [])


@row("9.10 migrated")
@pytest.mark.parametrize("policy", ["Delete", "Recycle", ""])
def test_a_migrated_volume_is_left_to_its_driver(policy: str) -> None:
    after = world(left(policy, notes={MIGRATED_TO: "ebs.csi.aws.com"})).sync_volume()
    assert (after.writes, after.started, after.notices) == ([], [], [])


@row("9.10 unknown policy")
def test_an_unknown_policy_fails_the_volume_once() -> None:
    after = world(left("")).sync_volume().sync_volume()
    assert after.volume().phase == "Failed"
    assert after.notices == [(WARNING, "VolumeUnknownReclaimPolicy")]
    assert len(after.writes) == 1


# --- Delete ---------------------------------------------------------------------------------------------


@row("9.10 delete")
@pytest.mark.parametrize(
    "given",
    [
        left("Delete"),
        left("Delete", notes={PROVISIONED_BY: DISK.name}),
        left("Delete", notes={PROVISIONED_BY: ""}),
    ],
    ids=["by source", "by name", "by source, empty name"],
)
def test_a_released_volume_is_deleted_storage_first(given: Object) -> None:
    after = world(given).sync_volume()
    assert after.calls == [("delete", "pv", "")]
    assert not after.has(VOLUME, "pv")
    assert after.notices == []
    guarded = given[1]["metadata"]["annotations"].get(PROVISIONED_BY) == DISK.name
    assert len(after.writes) == (2 if guarded else 0)


@row("9.10 delete")
def test_the_guard_is_taken_off_only_after_the_storage_is_gone() -> None:
    guarded = provisioned_pv("pv", phase="Released", ref=ref(), finalizers=(PV_CONTROLLER_FINALIZER,))
    failed = world(guarded, delete=["disk on fire"]).sync_volume()
    assert failed.volume().meta.finalizers == (PV_CONTROLLER_FINALIZER,)
    assert not world(guarded).sync_volume().has(VOLUME, "pv")


@row("9.10 delete")
def test_a_protected_volume_is_only_marked_and_goes_with_its_protection() -> None:
    after = world(left("Delete", finalizers=(PV_PROTECTION,))).sync_volume()
    assert after.volume().meta.being_deleted
    after.sync_volume()
    assert after.protect_volume().has(VOLUME, "pv") is False


@row("9.10 delete")
def test_a_volume_that_goes_with_our_own_finalizer_is_no_error() -> None:
    marked = provisioned_pv("pv", phase="Released", ref=ref(), finalizers=(PV_CONTROLLER_FINALIZER,), deleted=True)
    after = world(marked).sync_volume()
    assert not after.has(VOLUME, "pv")
    assert after.errors == []


@row("9.10 delete, no deleter")
@pytest.mark.parametrize(
    "given",
    [
        left("Delete", source="nfs"),
        left("Delete", notes={PROVISIONED_BY: "kubernetes.io/unknown"}, finalizers=(PV_CONTROLLER_FINALIZER,)),
    ],
    ids=["no plugin for the source", "unknown in-tree name"],
)
def test_a_volume_that_nobody_can_delete_fails_once(given: Object) -> None:
    after = world(given).sync_volume().sync_volume()
    assert after.volume().phase == "Failed"
    assert after.notices == [(WARNING, "VolumeFailedDelete")]
    assert len(after.errors) == 2
    assert "no volume plugin matched" in after.messages[0]


@row("9.10 delete, no deleter")
@pytest.mark.parametrize("notes", [{}, {PROVISIONED_BY: DISK.name}], ids=["by source", "by name"])
def test_a_plugin_that_cannot_delete_is_no_deleter(notes: dict[str, str]) -> None:
    plugin = replace(DISK, deletes=False)
    given = left("Delete", notes=notes, finalizers=(PV_CONTROLLER_FINALIZER,))
    after = world(given, rules=replace(RULES, plugins={DISK.name: plugin})).sync_volume()
    assert after.volume().phase == "Failed"
    assert after.calls == []


@row("9.10 delete, no deleter")
def test_a_volume_without_any_source_is_nobodys_to_delete() -> None:
    _, manifest = left("Delete")
    del manifest["spec"]["hostPath"]
    assert world((VOLUME, manifest)).sync_volume().volume().phase == "Failed"


@row("9.10 delete", "9.10 recycle")
@pytest.mark.parametrize(("policy", "call"), [("Delete", "delete"), ("Recycle", "recycle")])
def test_a_plugin_needs_to_do_no_more_than_it_is_asked_for(policy: str, call: str) -> None:
    plugin = replace(DISK, deletes=call == "delete", recycles=call == "recycle")
    after = world(left(policy), rules=replace(RULES, plugins={DISK.name: plugin})).sync_volume()
    assert after.calls == [(call, "pv", "")]
    unable = replace(DISK, deletes=call != "delete", recycles=call != "recycle")
    assert world(left(policy), rules=replace(RULES, plugins={DISK.name: unable})).sync_volume().calls == []


@row("9.10 delete, external")
def test_a_volume_that_turns_out_to_be_migrated_is_left_to_its_driver() -> None:
    now = left("Delete", notes={PROVISIONED_BY: "kubernetes.io/aws-ebs"})
    after = changed_meanwhile(world(left("Delete")), now)
    after._run(after._started.pop())
    assert (after.calls, after.notices, after.errors) == ([], [], [])


@row("9.10 delete", "9.10 recycle")
@pytest.mark.parametrize("policy", ["Delete", "Recycle"])
def test_a_volume_that_is_gone_meanwhile_is_done(policy: str) -> None:
    after = world(left(policy))
    after.run_operations = False
    after.sync_volume()
    after.server.objects.clear()
    after._run(after._started.pop())
    assert (after.calls, after.errors) == ([], [])


@row("9.10 delete")
def test_a_volume_whose_object_goes_while_its_storage_is_deleted_is_no_error() -> None:
    def vanishing(after: World, request: Request) -> None:
        if isinstance(request, DeleteAsset):
            after.server.objects.clear()

    given = world(provisioned_pv("pv", phase="Released", ref=ref(), finalizers=(PV_CONTROLLER_FINALIZER,)))
    given.before_answer = vanishing
    assert given.sync_volume().errors == []


@row("9.10 delete, external")
@pytest.mark.parametrize(
    "given",
    [
        left("Delete", notes={PROVISIONED_BY: "csi.example.com"}),
        left("Delete", source="csi"),
        left("Delete", source="csi", notes={PROVISIONED_BY: ""}),
    ],
    ids=["foreign name", "csi", "csi, empty name"],
)
def test_a_volume_of_an_external_provisioner_stays_released_for_it(given: Object) -> None:
    after = world(given).sync_volume()
    assert after.volume().phase == "Released"
    assert (after.calls, after.notices, after.errors) == ([], [], [])


def changed_meanwhile(given: World, changed: Object) -> World:
    """Between the sync and its operation the store gets another version."""
    given.run_operations = False
    given.sync_volume()
    given.server.load(*changed)
    given.run_operations = True
    return given


@row("9.10 delete, not released")
@pytest.mark.parametrize(
    "now",
    [
        left("Delete", ref=None),
        left("Delete", ref=ref(uid="")),
        left("Retain"),
        left("Recycle"),
    ],
    ids=["freed", "reserved by name", "retained", "to be recycled"],
)
@pytest.mark.parametrize("rules", [RULES, replace(PARITY, plugins=RULES.plugins)], ids=["volsched", "parity"])
def test_a_volume_that_changed_meanwhile_is_not_deleted(now: Object, rules: Any) -> None:
    after = changed_meanwhile(world(left("Delete"), rules=rules), now)
    after._run(after._started.pop())
    assert after.calls == []
    assert after.has(VOLUME, "pv")


@row("9.10 delete, not released")
def test_another_volume_of_the_same_name_is_not_deleted() -> None:
    _, other = left("Delete")
    other["metadata"]["uid"] = "uid-other"
    after = changed_meanwhile(world(left("Delete")), (VOLUME, other))
    after._run(after._started.pop())
    assert after.calls == []


@row("9.10 delete, not released")
@pytest.mark.parametrize(
    ("claim", "deleted"),
    [
        (pvc(), False),
        (bound_pvc(), False),
        (bound_pvc("other"), True),
        (pvc(uid="uid-new"), True),
    ],
    ids=["unbound", "bound to it", "bound elsewhere", "a namesake"],
)
@pytest.mark.parametrize("safe", [True, False])
def test_a_volume_whose_claim_came_back_is_not_deleted(claim: Object, deleted: bool, safe: bool) -> None:
    """The claim appears after the sync; the reference sees it in its cache, we ask the store."""
    after = world(left("Delete"), rules=replace(RULES, safe_release=safe))
    after.run_operations = False
    after.sync_volume()
    after.server.load(*claim)
    if not safe:
        after._caches.store(*claim)
    after._run(after._started.pop())
    assert bool(after.calls) is deleted


@row("9.10 delete, in use")
def test_a_volume_in_use_is_tried_again_and_does_not_fail() -> None:
    after = world(left("Delete"), delete=["in-use", "in-use", ""]).sync_volume().sync_volume()
    assert after.volume().phase == "Released"
    assert after.notices == [(NORMAL, "VolumeDelete")] * 2
    assert len(after.errors) == 2
    assert not after.sync_volume().has(VOLUME, "pv")


@row("9.10 delete fails")
def test_a_failed_deletion_is_reported_once_and_tried_again() -> None:
    after = world(left("Delete"), delete=["disk on fire", "disk on fire", ""]).sync_volume().sync_volume()
    assert after.volume().phase == "Failed"
    assert after.notices == [(WARNING, "VolumeFailedDelete")]
    assert after.server.objects[VOLUME, "pv"]["status"]["message"] == "disk on fire"
    assert not after.sync_volume().has(VOLUME, "pv")


@row("9.10 delete fails")
def test_a_guard_that_cannot_be_taken_off_fails_the_volume() -> None:
    guarded = provisioned_pv("pv", phase="Released", ref=ref(), finalizers=(PV_CONTROLLER_FINALIZER,))
    after = world(guarded).fail("update", "persistentvolumes", part="").sync_volume()
    assert after.volume().phase == "Failed"
    assert after.notices == [(WARNING, "VolumeFailedDelete")]


@row("9.10 delete")
@pytest.mark.parametrize("skip", [0, 1])
def test_a_store_that_does_not_answer_deletes_no_object(skip: int) -> None:
    after = world(left("Delete")).fail("get", "persistentvolumes", skip=skip).sync_volume()
    assert after.has(VOLUME, "pv")
    assert len(after.calls) == skip


@row("9.10 delete")
def test_the_store_is_asked_for_the_claim_before_storage_is_touched() -> None:
    after = world(left("Delete")).sync_volume()
    asked = [(request.kind, request.key) for request in after.requests if isinstance(request, LiveGet)]
    assert asked == [(CLAIM, KEY), (VOLUME, "pv"), (CLAIM, KEY), (VOLUME, "pv")]


# --- Recycle --------------------------------------------------------------------------------------------


@row("9.10 recycle")
@pytest.mark.parametrize(("notes", "then"), [(BY_US, None), ({}, "")])
def test_a_scrubbed_volume_is_available_again(notes: dict[str, str], then: str | None) -> None:
    after = world(left("Recycle", notes=notes)).sync_volume()
    assert after.calls == [("recycle", "pv", "")]
    assert after.notices == [(NORMAL, "VolumeRecycled")]
    assert after.volume().phase == "Available"
    assert (after.volume().claim_ref and after.volume().claim_ref.uid) == then


@row("9.10 recycle")
@pytest.mark.parametrize("odd", [{"notes": {PROVISIONED_BY: "csi.example.com"}}, {"source": "csi"}])
def test_who_provisioned_a_volume_plays_no_part_in_recycling(odd: dict[str, Any]) -> None:
    every = replace(DISK, sources=None)
    after = world(left("Recycle", **odd), rules=replace(RULES, plugins={DISK.name: every})).sync_volume()
    assert after.calls == [("recycle", "pv", "")]


@row("9.10 recycle, used")
def test_a_volume_that_pods_use_is_not_scrubbed_and_says_so_every_time() -> None:
    after = world(left("Recycle"), pod("b", node="n1"), pod("a")).sync_volume().sync_volume()
    assert after.calls == []
    assert after.notices == [(NORMAL, "VolumeFailedRecycle")] * 2
    assert after.messages[0] == "Volume is used by pods: db/a,db/b"
    assert after.volume().phase == "Released"


@row("9.10 recycle, used")
@pytest.mark.parametrize(
    "others",
    [
        [pod(phase="Succeeded", node="n1")],
        [pod(node="n1"), bound_pvc("other", uid="uid-new"), sc()],
    ],
    ids=["finished", "the pods use a new claim of that name"],
)
def test_pods_that_do_not_use_it_do_not_hold_up_recycling(others: list[Object]) -> None:
    assert world(left("Recycle"), *others).sync_volume().calls == [("recycle", "pv", "")]


@row("9.10 recycle, no recycler")
def test_a_volume_that_nobody_can_scrub_fails_once() -> None:
    after = world(left("Recycle", source="nfs")).sync_volume().sync_volume()
    assert after.volume().phase == "Failed"
    assert after.notices == [(WARNING, "VolumeFailedRecycle")]
    assert after.messages == ["No recycler plugin found for the volume!"]


@row("9.10 recycle fails")
def test_a_failed_scrub_is_reported_once_and_tried_again() -> None:
    after = world(left("Recycle"), recycle=["stuck", "stuck", ""]).sync_volume().sync_volume()
    assert after.volume().phase == "Failed"
    assert after.messages == ["Recycle failed: stuck"]
    assert after.sync_volume().volume().phase == "Available"


@row("9.10 recycle")
def test_a_volume_that_was_taken_back_is_not_scrubbed() -> None:
    after = changed_meanwhile(world(left("Recycle")), left("Recycle", ref=ref(uid="")))
    after._run(after._started.pop())
    assert after.calls == []


# --- finalizers -----------------------------------------------------------------------------------------

IN_TREE, FOREIGN, MIGRATED = "kubernetes.io/mock", "csi.example.com", "kubernetes.io/aws-ebs"
OURS, THEIRS = PV_CONTROLLER_FINALIZER, EXTERNAL_PROVISIONER_FINALIZER


@row(
    "9.10 finalizer added", "9.10 finalizer removed", "9.10 external finalizer removed",
    "9.10 migrated finalizer", "9.10 foreign finalizers",
)  # fmt: skip
@pytest.mark.parametrize(
    ("by", "policy", "before", "after"),
    [
        (IN_TREE, "Delete", (), (OURS,)),
        (IN_TREE, "Delete", ("x", OURS), ("x", OURS)),
        ("kubernetes.io/unknown", "Delete", (), (OURS,)),
        (DISK.name, "Delete", (), (OURS,)),
        (IN_TREE, "Retain", ("x", OURS), ("x",)),
        (IN_TREE, "Recycle", (OURS,), ()),
        (IN_TREE, "", (OURS,), (OURS,)),
        (IN_TREE, "Delete", (THEIRS,), (OURS,)),
        (IN_TREE, "Retain", (THEIRS, OURS, "x"), ("x",)),
        (MIGRATED, "Delete", (THEIRS, OURS), (THEIRS,)),
        (MIGRATED, "Retain", (THEIRS,), (THEIRS,)),
        (FOREIGN, "Delete", (THEIRS, OURS), (THEIRS, OURS)),
        ("", "Retain", (THEIRS, OURS), (THEIRS, OURS)),
        (None, "Delete", (OURS,), (OURS,)),
    ],
)
def test_a_volume_is_guarded_by_whoever_deletes_its_storage(
    by: str | None, policy: str, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    notes = {} if by is None else {PROVISIONED_BY: by}
    given = world(pv(policy=policy, notes=notes, finalizers=before)).sync_volume()
    assert given.volume().meta.finalizers == after


@row("9.10 refused while deleted")
def test_a_guard_may_not_be_added_to_a_volume_being_deleted_and_the_sync_ends_there() -> None:
    given = provisioned_pv("pv", phase="Released", ref=ref(), finalizers=("x",), deleted=True)
    after = world(given).sync_volume()
    assert len(after.errors) == 1
    assert (after.started, after.calls) == ([], [])
