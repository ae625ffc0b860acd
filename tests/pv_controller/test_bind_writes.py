"""The four writes of a binding, what a crash between them leaves, and undoing one."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    RULES,
    Object,
    World,
    bound_pvc,
    crash,
    immediate,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import (
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    PRE_RESIZE_CAPACITY,
    PROVISIONED_BY,
)
from volsched.pv_controller.rules import CLAIM, PARITY, VOLUME
from volsched.pv_controller.rules.requests import Update

WARNING = "Warning"
BY_US = {BOUND_BY_CONTROLLER: "yes"}
FOUR = [(VOLUME, False), (VOLUME, True), (CLAIM, False), (CLAIM, True)]


# --- the four writes ------------------------------------------------------------------------------------


@row("9.7 write 1", "9.7 write 2", "9.7 write 3", "9.7 write 4")
def test_the_volume_is_written_before_the_claim() -> None:
    after = world(pvc(), immediate(), pv()).sync_claim()
    assert after.writes == FOUR
    assert after.volume().claim_ref.resource_version == "1"


@row("9.7 write 1", "9.7 write 2", "9.7 write 3", "9.7 write 4")
def test_a_healthy_binding_is_not_written_again() -> None:
    after = world(bound_pvc(), sc(), pv(phase="Bound", ref=ref(), notes=BY_US)).sync_claim()
    assert after.writes == []


@row("9.7 write 1")
@pytest.mark.parametrize(
    ("given", "written"),
    [
        (ref(), False),
        ({"namespace": "db", "name": "data", "uid": "uid-data"}, False),
        (ref(uid=""), True),
        ({"namespace": "db", "name": "data"}, True),
    ],
    ids=["complete", "without kind", "by name", "by name, without kind"],
)
def test_a_reference_is_completed_only_where_the_uid_is_missing(given: dict[str, str], written: bool) -> None:
    after = world(pvc(), sc(), pv(ref=given)).sync_claim()
    assert after.writes == (FOUR if written else FOUR[1:])
    assert after.volume().claim_ref.kind == ("PersistentVolumeClaim" if written else given.get("kind", ""))


@row("9.7 write 1")
def test_a_reference_with_the_right_uid_and_a_wrong_namespace_is_put_right() -> None:
    after = world(bound_pvc(), sc(), pv(phase="Bound", ref=ref(namespace="else"), notes=BY_US)).sync_claim()
    assert after.volume().claim_ref.namespace == "db"


@row(
    "9.7 link by search", "9.7 link by volume", "9.7 link by claim",
    "9.7 link by both", "9.7 link by external provisioner",
)  # fmt: skip
@pytest.mark.parametrize(
    ("claim", "volume", "on_volume", "on_claim"),
    [
        (pvc(), pv(), True, True),
        (pvc(), pv(ref=ref(), notes=BY_US), True, True),
        (pvc(), pv(ref=ref(uid="")), False, True),
        (pvc(volume="pv"), pv(), True, False),
        (pvc(volume="pv"), pv(ref=ref(uid="")), False, False),
        (pvc(), provisioned_pv("pv", by="csi.example.com", ref=ref(), phase="Pending"), False, True),
    ],
    ids=["search", "scheduler", "volume", "claim", "both", "external provisioner"],
)
def test_a_link_says_who_made_it(claim: Object, volume: Object, on_volume: bool, on_claim: bool) -> None:
    after = world(claim, immediate(), volume).sync_claim()
    assert (BOUND_BY_CONTROLLER in after.volume().meta.annotations) is on_volume
    assert (BOUND_BY_CONTROLLER in after.claim().meta.annotations) is on_claim
    assert BIND_COMPLETED in after.claim().meta.annotations


@row("9.7 write 1", "9.7 write 3")
def test_fields_that_nobody_knows_survive_every_write() -> None:
    _, claim = pvc(futureField={"a": 1})
    _, volume = pv(otherFuture=[1])
    claim["metadata"]["managedFields"] = [{"manager": "x"}]
    claim["status"]["future"] = 3
    after = world((CLAIM, claim), immediate(), (VOLUME, volume)).sync_claim()
    stored = after.server.objects[CLAIM, "db/data"]
    assert stored["spec"]["futureField"] == {"a": 1}
    assert stored["metadata"]["managedFields"] == [{"manager": "x"}]
    assert stored["status"]["future"] == 3
    assert after.server.objects[VOLUME, "pv"]["spec"]["otherFuture"] == [1]


@row("9.7 write 1")
def test_every_write_carries_the_version_it_was_decided_on() -> None:
    after = world(pvc(), immediate(), pv()).sync_claim()
    versions = [
        asked.manifest["metadata"]["resourceVersion"] for asked in after.requests if isinstance(asked, Update)
    ]
    assert versions == ["1", "2", "1", "4"]


# --- step 4 ---------------------------------------------------------------------------------------------


@row("9.7 capacity")
@pytest.mark.parametrize(
    ("phase", "held", "notes", "granted"),
    [
        ("Pending", None, {}, "10Gi"),
        ("Lost", None, {}, "10Gi"),
        ("Pending", "7Gi", {}, "10Gi"),
        ("Bound", "7Gi", {}, "7Gi"),
        ("Pending", None, {PRE_RESIZE_CAPACITY: "5Gi"}, "5Gi"),
        ("Pending", None, {PRE_RESIZE_CAPACITY: "not a size"}, "10Gi"),
        ("Pending", "10240Mi", {}, "10240Mi"),
    ],
)
def test_the_size_is_granted_when_the_claim_becomes_bound(
    phase: str, held: str | None, notes: dict[str, str], granted: str
) -> None:
    status: dict[str, Any] = {"capacity": {"storage": held}} if held else {}
    after = world(pvc(phase=phase, status=status), sc(), pv(ref=ref(), notes=notes)).sync_claim()
    assert after.status()["capacity"] == {"storage": granted}
    assert after.status()["accessModes"] == ["ReadWriteOnce"]
    assert after.claim().phase == "Bound"


@row("9.7 attributes class")
@pytest.mark.parametrize(
    ("phase", "held", "wanted", "got"),
    [
        ("Pending", None, "gold", "gold"),
        ("Pending", "old", None, None),
        ("Pending", "old", "", ""),
        ("", None, "gold", None),
        ("Lost", "old", "gold", "old"),
        ("Bound", "old", "gold", "old"),
    ],
)
def test_the_attributes_class_is_copied_from_pending_to_bound_only(
    phase: str, held: str | None, wanted: str | None, got: str | None
) -> None:
    spec = {} if wanted is None else {"volumeAttributesClassName": wanted}
    status = {} if held is None else {"currentVolumeAttributesClassName": held}
    after = world(pvc(volume="pv", phase=phase, status=status), sc(), pv(ref=ref(), **spec)).sync_claim()
    assert after.status().get("currentVolumeAttributesClassName") == got


@row("9.7 no capacity")
def test_a_volume_without_capacity_is_an_error_at_the_last_write() -> None:
    after = world(pvc(volume="pv"), sc(), pv(ref=ref(), size=None)).sync_claim()
    assert [str(error) for error in after.errors] == ['PersistentVolume "pv" is without a storage capacity']
    assert after.claim().phase == "Pending"
    assert BIND_COMPLETED in after.claim().meta.annotations


# --- crashes and errors ---------------------------------------------------------------------------------


def settled(given: World) -> tuple[Any, ...]:
    given.settle()
    claim, volume = given.claim(), given.volume()
    return claim.volume_name, claim.phase, volume.phase, volume.claim_ref.uid, given.status()["capacity"]


LINKS = {
    "search": ([pvc(), pv()], BY_US, BY_US),
    "volume": ([pvc(), pv(ref=ref(uid=""))], {}, BY_US),
    "claim": ([pvc(volume="pv"), pv()], BY_US, {}),
    "both": ([pvc(volume="pv"), pv(ref=ref(uid=""))], {}, {}),
}


@row("9.7 crash after 1", "9.7 crash after 2", "9.7 crash after 3")
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("writes", [1, 2, 3, 4])
def test_a_crash_after_any_write_is_finished_by_the_next_syncs(link: str, writes: int) -> None:
    objects, on_volume, on_claim = LINKS[link]
    after = world(*objects, immediate())
    after.crash_after_writes = writes
    crash(after.sync_claim)
    after.crash_after_writes = None
    assert settled(after) == ("pv", "Bound", "Bound", "uid-data", {"storage": "10Gi"})
    assert after.volume().meta.annotations == on_volume
    assert after.claim().meta.annotations == {BIND_COMPLETED: "yes", **on_claim}


@row("9.7 crash after 1", "9.7 crash after 2")
@pytest.mark.parametrize("writes", [1, 2])
def test_a_volume_of_a_half_done_binding_has_its_claim_synced(writes: int) -> None:
    after = world(pvc(), immediate(), pv())
    after.crash_after_writes = writes
    crash(after.sync_claim)
    phase = after.volume().phase
    after.crash_after_writes = None
    assert after.sync_volume().enqueued == ["db/data"]
    assert after.volume().phase == phase


@row("9.7 crash after 1")
def test_a_volume_of_a_half_done_binding_is_not_taken_by_another_claim() -> None:
    after = world(pvc(), pvc("thief"), immediate(), pv())
    after.crash_after_writes = 1
    crash(after.sync_claim)
    after.crash_after_writes = None
    assert after.sync_claim("db/thief").claim("db/thief").volume_name == ""


@row("9.7 write 1", "9.7 write 2", "9.7 write 3", "9.7 write 4")
@pytest.mark.parametrize("failing", range(4))
def test_a_refused_write_ends_the_sync_and_the_next_one_goes_on(failing: int) -> None:
    kind, status = FOUR[failing]
    resource = "persistentvolumes" if kind == VOLUME else "persistentvolumeclaims"
    after = world(pvc(), immediate(), pv()).fail(
        "update", resource, part="status" if status else "", error="conflict"
    )
    after.sync_claim()
    assert len(after.errors) == 1
    assert after.writes == FOUR[: failing + 1]
    assert settled(after)[:3] == ("pv", "Bound", "Bound")


# --- bound claims ---------------------------------------------------------------------------------------


@row("9.5 no volume name")
def test_a_bound_claim_without_a_volume_name_is_lost() -> None:
    after = world(pvc(phase="Bound", notes={BIND_COMPLETED: "yes"}), sc(), pv()).sync_claim()
    assert after.claim().phase == "Lost"
    assert after.notices == [(WARNING, "ClaimLost")]
    assert "lost reference" in after.messages[0]


@row("9.5 volume missing")
@pytest.mark.parametrize("rules", [RULES, PARITY])
def test_a_bound_claim_without_its_volume_is_lost_once(rules: Any) -> None:
    after = world(bound_pvc(), sc(), rules=rules).sync_claim().sync_claim()
    clean = {"dataState": "Clean"} if rules is PARITY else {}
    assert after.status() == {"phase": "Lost", **clean}
    assert after.notices == [(WARNING, "ClaimLost")]
    assert len(after.writes) == 1


@row("9.5 volume missing")
def test_a_lost_claim_keeps_what_was_left_in_its_status() -> None:
    after = world(bound_pvc(phase="Lost"), sc()).sync_claim()
    assert after.writes == []


@row("9.5 no claimRef")
def test_a_reservation_that_was_taken_off_is_made_again_without_asking_whether_it_fits() -> None:
    after = world(bound_pvc(size="90Gi"), sc(), pv(cls="other")).sync_claim()
    assert after.volume().claim_ref.uid == "uid-data"
    assert (after.volume().phase, after.claim().phase) == ("Bound", "Bound")


@row("9.5 same uid")
@pytest.mark.parametrize("phase", ["Pending", "Lost", "Bound", ""])
def test_a_claim_whose_volume_points_back_is_bound_whatever_its_phase(phase: str) -> None:
    after = world(bound_pvc(phase=phase), sc(), pv(ref=ref(), notes=BY_US)).sync_claim()
    assert (after.claim().phase, after.volume().phase) == ("Bound", "Bound")
    assert after.notices == []


@row("9.5 other uid")
@pytest.mark.parametrize("uid", ["", "uid-old"])
def test_a_claim_whose_volume_is_somebody_elses_is_misbound(uid: str) -> None:
    after = world(bound_pvc(), sc(), pv(ref=ref(uid=uid))).sync_claim().sync_claim()
    assert after.claim().phase == "Lost"
    assert after.notices == [(WARNING, "ClaimMisbound")]


# --- unbinding ------------------------------------------------------------------------------------------

ELSEWHERE = bound_pvc("other")


@row("9.8 by controller", "9.6 V10")
def test_a_surplus_volume_that_we_found_is_freed() -> None:
    notes = {**BY_US, BINDING_STAMP: "b-1", "mine": "x"}
    after = world(ELSEWHERE, sc(), pv(phase="Bound", ref=ref(), notes=notes)).sync_volume()
    assert after.volume().claim_ref is None
    assert after.volume().meta.annotations == {"mine": "x"}
    assert after.volume().phase == "Available"
    assert after.writes == [(VOLUME, False), (VOLUME, True)]


@row("9.8 by user", "9.6 V10")
def test_a_surplus_volume_that_a_user_reserved_stays_reserved_by_name() -> None:
    after = world(ELSEWHERE, sc(), pv(phase="Bound", ref=ref(), notes={BINDING_STAMP: "b-1"})).sync_volume()
    assert (after.volume().claim_ref.name, after.volume().claim_ref.uid) == ("data", "")
    assert after.volume().meta.annotations == {}
    assert after.volume().phase == "Available"


@row("9.8 by controller")
@pytest.mark.parametrize("failing", ["", "status"])
def test_an_unbinding_that_fails_half_way_is_finished_later(failing: str) -> None:
    after = world(ELSEWHERE, sc(), pv(phase="Bound", ref=ref(), notes={**BY_US, PROVISIONED_BY: "x"}))
    after.fail("update", "persistentvolumes", part=failing).sync_volume()
    assert len(after.errors) == 1
    after.sync_volume()
    assert (after.volume().claim_ref, after.volume().phase) == (None, "Available")
