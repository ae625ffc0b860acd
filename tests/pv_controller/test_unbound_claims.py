"""Claims that are not bound yet."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    KEY,
    Object,
    World,
    immediate,
    pod,
    pv,
    pvc,
    ref,
    sc,
    selected,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER
from volsched.pv_controller.rules import SyncError

NORMAL, WARNING = "Normal", "Warning"


def is_bound(after: World, name: str = "pv", key: str = KEY) -> bool:
    claim, volume = after.claim(key), after.volume(name)
    return (
        claim.volume_name == name
        and BIND_COMPLETED in claim.meta.annotations
        and (claim.phase, volume.phase) == ("Bound", "Bound")
        and volume.claim_ref.uid == claim.meta.uid
    )


# --- U1: no volume named --------------------------------------------------------------------------------


@row("9.3 U1 step 1")
def test_a_class_without_binding_mode_is_an_error_and_changes_nothing() -> None:
    after = world(pvc(), sc(mode=None), pv()).sync_claim()
    assert [str(error) for error in after.errors] == ['VolumeBindingMode not set for StorageClass "wait"']
    assert after.writes == []


@row("9.3 U1 step 1", "9.3 U1 step 2")
@pytest.mark.parametrize(
    ("objects", "bound"),
    [
        ([immediate()], True),
        ([], True),
        ([sc()], False),
    ],
    ids=["immediate", "class is gone", "delayed"],
)
def test_a_free_volume_is_taken_unless_the_class_leaves_it_to_the_scheduler(
    objects: list[Object], bound: bool
) -> None:
    after = world(pvc(), pv(), *objects).sync_claim()
    assert (after.claim().volume_name == "pv") is bound


@row("9.3 U1 step 2")
def test_the_smallest_volume_with_the_fewest_modes_is_taken() -> None:
    more = ("ReadWriteOnce", "ReadOnlyMany")
    volumes = [pv("a", size="9Gi", modes=more), pv("b", size="50Gi"), pv("c", size="40Gi"), pv("d", size="7Gi")]
    after = world(pvc(), immediate(), *volumes).sync_claim()
    assert is_bound(after, "c")


@row("9.3 U1 step 2")
def test_a_volume_with_more_modes_is_taken_where_no_other_fits() -> None:
    after = world(pvc(), immediate(), pv("a", modes=("ReadWriteOnce", "ReadOnlyMany")), pv("b", size="1Gi"))
    assert is_bound(after.sync_claim(), "a")


@row("9.3 U1 step 2")
def test_several_reserved_volumes_are_settled_by_name() -> None:
    after = world(pvc(), sc(), pv("b", ref=ref(uid="")), pv("a", size="90Gi", ref=ref(uid=""))).sync_claim()
    assert is_bound(after, "a")


@row("9.3 U1 step 2")
def test_an_invalid_selector_is_an_error_only_where_a_volume_could_be_searched() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Perhaps"}]}
    without = world(pvc(cls="", selector=bad)).sync_claim()
    assert without.errors == []
    assert without.notices == [(NORMAL, "FailedBinding")]
    searched = world(pvc(cls="", selector=bad), pv(cls="other")).sync_claim()
    assert "is not a valid label selector operator" in str(searched.errors[0])
    assert searched.notices == []
    other_modes = world(pvc(cls="", selector=bad), pv(modes=("ReadOnlyMany",))).sync_claim()
    assert other_modes.errors == []


@row("9.3 U1 step 3")
@pytest.mark.parametrize("uid", ["", "uid-data"])
def test_a_reserved_volume_is_bound_at_once_in_a_delayed_class(uid: str) -> None:
    assert is_bound(world(pvc(), sc(), pv(ref=ref(uid=uid))).sync_claim())


@row("9.3 U1 step 4")
def test_a_claim_without_class_gets_the_newest_default_once_it_finds_no_volume() -> None:
    classes = [
        sc("old", default=True, made="2025-01-01T00:00:00Z"),
        sc("new-b", default=True),
        sc("new-a", default=True),
        sc("none"),
    ]
    after = world(pvc(cls=None), *classes).sync_claim()
    assert after.claim().storage_class_name == "new-a"
    assert after.notices == []
    first_a_volume = world(pvc(cls=None), pv(cls=None), *classes).sync_claim()
    assert is_bound(first_a_volume)
    assert first_a_volume.claim().storage_class_name is None


@row("9.3 U1 step 4")
def test_an_explicitly_empty_class_is_never_defaulted() -> None:
    after = world(pvc(cls=""), sc("new", default=True)).sync_claim()
    assert after.claim().storage_class_name == ""
    assert after.notices == [(NORMAL, "FailedBinding")]


@row("9.3 U1 step 5")
@pytest.mark.parametrize(
    ("pods", "reason", "message"),
    [
        ([], "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        ([pod("a")], "WaitForPodScheduled", "waiting for pod a to be scheduled"),
        ([pod("b"), pod("a")], "WaitForPodScheduled", "waiting for pods a,b to be scheduled"),
        ([pod("a", node="n1")], "WaitForFirstConsumer", None),
        ([pod("a", claim="other")], "WaitForFirstConsumer", None),
        ([pod("da", ephemeral="ta")], "WaitForFirstConsumer", None),
    ],
    ids=["none", "one", "two", "scheduled", "of another claim", "of another template"],
)
def test_a_delayed_claim_says_whom_it_waits_for(pods: list[Object], reason: str, message: str | None) -> None:
    after = world(pvc(phase="Bound"), sc(), pv(), *pods).sync_claim()
    assert after.notices == [(NORMAL, reason)]
    assert message in (None, after.messages[0])
    assert after.claim().phase == "Pending"


@row("9.3 U1 step 5")
def test_a_pod_may_wait_through_an_ephemeral_volume() -> None:
    after = world(pvc("app-v"), sc(), pod("app", ephemeral="v")).sync_claim("db/app-v")
    assert after.messages == ["waiting for pod app to be scheduled"]


RUNNING: dict[str, Any] = {"state": {"running": {}}}
STOPPED: dict[str, Any] = {"state": {"terminated": {}}}
WAITING: dict[str, Any] = {"state": {"waiting": {}}}


@row("9.3 terminated pods")
@pytest.mark.parametrize(
    ("given", "waits"),
    [
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
        (pod(phase="Running"), True),
        (pod(deleted=True), False),
        (pod(deleted=True, containers=[STOPPED, WAITING]), False),
        (pod(deleted=True, containers=[STOPPED, RUNNING]), True),
        (pod(deleted=True, containers=[{}]), True),
        (pod(containers=[STOPPED]), True),
    ],
)
def test_a_terminated_pod_is_no_consumer(given: Object, waits: bool) -> None:
    after = world(pvc(), sc(), given).sync_claim()
    assert after.notices == [(NORMAL, "WaitForPodScheduled" if waits else "WaitForFirstConsumer")]


@row("9.3 U1 step 6")
@pytest.mark.parametrize("node", ["n1", ""])
def test_a_selected_node_starts_provisioning_and_takes_no_free_volume(node: str) -> None:
    after = world(pvc(phase="Lost", notes=selected(node)), sc(provisioner="csi.example.com"), pv()).sync_claim()
    assert after.started == ["provision-db/data[uid-data]"]
    assert after.claim().volume_name == ""
    assert after.claim().phase == "Lost"


@row("9.3 U1 step 6")
def test_an_immediate_claim_without_a_volume_is_provisioned() -> None:
    after = world(pvc(), immediate(provisioner="csi.example.com"), pv(size="1Gi")).sync_claim()
    assert after.started == ["provision-db/data[uid-data]"]


@row("9.3 U1 step 7")
def test_without_class_and_volume_the_claim_waits_and_says_so_every_time() -> None:
    after = world(pvc(cls="", phase="")).sync_claim().sync_claim()
    assert after.notices == [(NORMAL, "FailedBinding")] * 2
    assert after.messages[0] == "no persistent volumes available for this claim and no storage class is set"
    assert after.claim().phase == "Pending"
    assert len(after.writes) == 1


@row("9.3 pending clears the status")
@pytest.mark.parametrize(
    "left",
    [
        {"phase": "Bound"},
        {"capacity": {"storage": "1Gi"}},
        {"accessModes": ["ReadWriteOnce"]},
        {"currentVolumeAttributesClassName": "gold"},
        {"dataState": "Clean"},
    ],
)
def test_a_pending_claim_keeps_nothing_of_a_volume_in_its_status(left: dict[str, Any]) -> None:
    kept = {"conditions": [{"type": "X"}]}
    after = world(pvc(cls="", status={**kept, **left})).sync_claim()
    assert after.status() == {"phase": "Pending", **kept}


# --- U2: a volume named ---------------------------------------------------------------------------------


@row("9.3 U2 missing")
def test_a_named_volume_that_does_not_exist_is_awaited_in_silence() -> None:
    after = world(pvc(volume="pv", phase="Bound"), sc()).sync_claim()
    assert after.claim().phase == "Pending"
    assert after.notices == []


@row("9.3 U2 free and fit")
def test_a_named_volume_is_bound_in_a_delayed_class_whatever_selector_phase_and_node_say() -> None:
    nowhere: dict[str, Any] = {"required": {"nodeSelectorTerms": []}}
    claim = pvc(volume="pv", selector={"matchLabels": {"a": "b"}})
    assert is_bound(world(claim, sc(), pv(phase="Released", nodeAffinity=nowhere)).sync_claim())


@row(
    "9.3 U2 free and unfit",
    "9.4 deleted", "9.4 size", "9.4 class", "9.4 attributes class", "9.4 volume mode", "9.4 access modes",
)  # fmt: skip
@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"deleted": True, "finalizers": ("x",)}, 'the volume is marked for deletion "pv"'),
        ({"size": "7Gi"}, "requested PV is too small"),
        ({"cls": "other"}, "storageClassName does not match"),
        ({"volumeAttributesClassName": "gold"}, "volumeAttributesClassName does not match"),
        ({"volumeMode": "Block"}, "incompatible volumeMode"),
        ({"modes": ("ReadOnlyMany",)}, "incompatible accessMode"),
    ],
)
def test_a_named_volume_that_does_not_fit_is_refused(odd: dict[str, Any], why: str) -> None:
    after = world(pvc(volume="pv", phase=""), sc(), pv(**odd)).sync_claim()
    assert after.notices == [(WARNING, "VolumeMismatch")]
    assert after.messages == [f'Cannot bind to requested volume "pv": {why}']
    assert after.claim().phase == "Pending"
    assert after.volume().claim_ref is None


@row("9.4 attributes class")
@pytest.mark.parametrize(("on_claim", "on_volume"), [("", None), (None, ""), ("gold", "gold")])
def test_no_attributes_class_and_an_empty_one_are_the_same(on_claim: str | None, on_volume: str | None) -> None:
    claim = {} if on_claim is None else {"volumeAttributesClassName": on_claim}
    volume = {} if on_volume is None else {"volumeAttributesClassName": on_volume}
    assert is_bound(world(pvc(volume="pv", **claim), sc(), pv(**volume)).sync_claim())


@row("9.4 deleted")
def test_the_first_misfit_is_the_one_that_is_reported() -> None:
    wrong = {"deleted": True, "finalizers": ("x",), "size": "1Gi", "cls": "other", "volumeMode": "Block"}
    assert "marked for deletion" in world(pvc(volume="pv"), sc(), pv(**wrong)).sync_claim().messages[0]


@row("9.4 size")
def test_sizes_of_a_named_volume_are_compared_in_whole_bytes() -> None:
    assert is_bound(world(pvc(volume="pv", size="1000001m"), sc(), pv(size="1000500m")).sync_claim())
    assert is_bound(world(pvc(volume="pv", size="1000500m"), sc(), pv(size="1000001m")).sync_claim())


@row("9.3 U2 ours")
@pytest.mark.parametrize("uid", ["", "uid-data"])
def test_where_both_sides_name_each_other_nothing_else_is_asked(uid: str) -> None:
    unfit = pv(ref=ref(uid=uid), size="1Gi", cls="other", volumeMode="Block", deleted=True, finalizers=("x",))
    assert is_bound(world(pvc(volume="pv"), sc(), unfit).sync_claim())


@row("9.3 U2 taken, named by the user")
def test_a_volume_of_another_claim_is_awaited() -> None:
    after = world(pvc(volume="pv", phase="Bound"), sc(), pv(ref=ref("other", uid="x"))).sync_claim()
    assert after.notices == [(WARNING, "FailedBinding")]
    assert after.messages == ['volume "pv" already bound to a different claim.']
    assert after.claim().phase == "Pending"
    assert after.errors == []


@row("9.3 U2 taken, named by the controller")
def test_a_binding_of_ours_that_lost_its_mark_is_an_error_and_is_left_as_it_is() -> None:
    claim = pvc(volume="pv", phase="Bound", notes={BOUND_BY_CONTROLLER: "yes"})
    after = world(claim, sc(), pv(ref=ref(uid="uid-old"))).sync_claim()
    assert after.notices == [(WARNING, "FailedBinding")]
    assert isinstance(after.errors[0], SyncError)
    assert str(after.errors[0]).endswith('volume already claimed by "db/data"')
    assert after.claim().phase == "Bound"
    assert after.writes == []
