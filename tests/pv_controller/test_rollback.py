"""Undoing bindings that no pod has used, and knowing which those are."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    KEY,
    RULES,
    UID,
    CrashError,
    Manifest,
    Object,
    World,
    bound_pvc,
    crash,
    immediate,
    pod,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    selected,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    ROLLBACK,
    STORAGE_PROVISIONER,
)
from volsched.pv_controller.rules import (
    CLAIM,
    PARITY,
    VOLUME,
    Notice,
    Request,
    Update,
    parsed_claim,
    parsed_class,
    parsed_volume,
    rollback_refusal,
)
from volsched.pv_controller.rules import reasons as texts
from volsched.pv_controller.rules.bind_writes import starts_clean
from volsched.pv_controller.rules.view import parsed_pod, placed_pods

NORMAL, WARNING = "Normal", "Warning"
BY_US = {BOUND_BY_CONTROLLER: "yes"}
ASKED = {ROLLBACK: "uid-pod"}
LINKS = {**selected(), STORAGE_PROVISIONER: "x", BETA_STORAGE_PROVISIONER: "x", "mine": "kept"}
COMPLETED = [(NORMAL, "RollbackCompleted")]


def asked(volume: str = "pv", **kw: Any) -> Object:
    return bound_pvc(volume, **{**kw, "notes": {**ASKED, **kw.get("notes", {})}})


def static(**kw: Any) -> Object:
    return pv(**{"phase": "Bound", "ref": ref(), "notes": {**BY_US, BINDING_STAMP: "b-1"}, **kw})


def dynamic(name: str = "pvc-uid-data", **kw: Any) -> Object:
    return provisioned_pv(name, **{"phase": "Bound", "ref": ref(), "notes": {**BY_US, BINDING_STAMP: "b-1"}, **kw})


# --- clean and dirty ------------------------------------------------------------------------------------


@row("10.1 clean")
@pytest.mark.parametrize(
    "volume",
    [
        pv(),
        pv(ref=ref(), notes=BY_US),
        pv(ref=ref(uid="")),
        provisioned_pv("pv", ref=ref(), phase="Pending"),
    ],
    ids=["free", "reserved by the scheduler", "reserved by a user", "just provisioned"],
)
def test_a_new_binding_of_a_volume_that_nobody_used_is_clean(volume: Object) -> None:
    given = world(pvc(), immediate(), volume).sync_claim()
    assert given.status()["dataState"] == "Clean"
    assert len([write for write in given.writes if write == (CLAIM, True)]) == 1


@row("10.1 left dirty")
@pytest.mark.parametrize(
    ("claim", "volume"),
    [
        (pvc(), pv(phase="Released", ref=ref(uid=""))),
        (pvc(), pv(phase="Failed", ref=ref(uid=""))),
        (pvc(), pv(phase="Bound", ref=ref())),
        (pvc(), pv(phase="Pending", ref=ref())),
        (pvc(), provisioned_pv("pv", phase="Pending", ref=ref(uid=""))),
        (pvc(), provisioned_pv("pv", phase="Released", ref=ref())),
        (pvc(volume="pv"), provisioned_pv("pv", phase="Pending")),
        (pvc(volume="pv"), pv()),
        (pvc(phase=""), pv(ref=ref())),
        (pvc(phase="Lost"), pv(ref=ref())),
        (pvc(volume="pv", notes={BIND_COMPLETED: "yes"}), pv()),
        (pvc(status={"dataState": "Dirty"}), pv(ref=ref())),
    ],
    ids=[
        "released", "failed", "half done", "not looked at", "provisioned by name",
        "provisioned and released", "provisioned and named by the user", "named by the user",
        "claim without phase", "lost claim", "repair", "marked dirty",
    ],
)  # fmt: skip
def test_a_binding_of_which_nobody_knows_is_not_called_clean(claim: Object, volume: Object) -> None:
    given = world(claim, sc(), volume).sync_claim()
    assert given.claim().phase == "Bound"
    assert given.status().get("dataState") != "Clean"


@row("10.1 left dirty")
@pytest.mark.parametrize(("uid", "clean"), [("", True), (UID, True), ("uid-old", False)])
def test_a_volume_that_names_another_claim_was_not_found_clean(uid: str, clean: bool) -> None:
    volume = parsed_volume(pv(ref=ref(uid=uid))[1]).value
    assert starts_clean(volume, parsed_claim(pvc()[1]).value) is clean


@row("10.1 left dirty")
def test_what_was_said_of_an_earlier_binding_does_not_hold_for_the_next() -> None:
    back = bound_pvc(phase="Lost")
    assert back[1]["status"]["dataState"] == "Clean"
    given = world(back, sc(), pv(phase="Available", ref=ref())).sync_claim()
    assert given.claim().phase == "Bound"
    assert "dataState" not in given.status()


@row("10.1 left dirty")
def test_a_crash_between_the_writes_loses_the_mark_and_errs_on_the_safe_side() -> None:
    for writes in (2, 3):
        given = world(pvc(), immediate(), pv())
        given.crash_after_writes = writes
        crash(given.sync_claim)
        given.crash_after_writes = None
        given.settle()
        assert given.claim().phase == "Bound"
        assert "dataState" not in given.status()


@row("10.1 left dirty")
@pytest.mark.parametrize("state", ["Clean", "Dirty"])
def test_a_bound_claims_state_is_nobodys_but_the_node_agents(state: str) -> None:
    claim = bound_pvc()
    claim[1]["status"]["dataState"] = state
    given = world(claim, sc(), static(modes=("ReadWriteOnce", "ReadOnlyMany"))).sync_claim()
    assert len(given.writes) == 1
    assert given.status()["dataState"] == state


def test_under_parity_nothing_is_called_clean_and_rollback_is_not_looked_at() -> None:
    fresh = world(pvc(), immediate(), pv(), rules=PARITY).sync_claim()
    assert "dataState" not in fresh.status()
    given = world(asked(), sc(), static(), rules=PARITY).sync_claim()
    assert given.writes == []


# --- eligibility ----------------------------------------------------------------------------------------


def refusal(
    claim: Object, volume: Object | None, cls: Object | None = None, *pods: Object, **kw: Any
) -> str | None:
    return rollback_refusal(
        parsed_claim(claim[1]).value,
        volume=None if volume is None else parsed_volume(volume[1]).value,
        storage_class=None if cls is None else parsed_class(cls[1]).value,
        used_by=placed_pods(parsed_pod(manifest) for _, manifest in pods),
        **kw,
    )


@row("10.1 eligibility")
@pytest.mark.parametrize("volume", [static(), static(policy="Delete"), dynamic(), dynamic(notes={})])
def test_a_clean_binding_that_we_made_may_be_undone(volume: Object) -> None:
    assert refusal(bound_pvc(), volume, sc()) is None
    assert refusal(bound_pvc(), volume, sc(), pod(), pod("b", node="n1", phase="Failed")) is None


@row("10.1 eligibility")
@pytest.mark.parametrize(
    ("claim", "volume", "cls", "why"),
    [
        (pvc(volume="pv", notes=BY_US), static(), sc(), texts.NOT_BOUND),
        (pvc(notes={BIND_COMPLETED: "yes"}), static(), sc(), texts.NOT_BOUND),
        (bound_pvc(), static(), immediate(), texts.NOT_DELAYED),
        (bound_pvc(), static(), None, texts.NOT_DELAYED),
        (bound_pvc(clean=False), static(), sc(), texts.MAY_HOLD_DATA),
        (bound_pvc(deleted=True), static(), sc(), texts.BEING_DELETED),
        (bound_pvc(), None, sc(), texts.VOLUME_GONE),
        (bound_pvc(), static(notes={}), sc(), texts.RESERVED_BY_USER),
        (bound_pvc(), dynamic(policy="Retain"), sc(), texts.KEPT_AFTER_RELEASE),
        (asked(), static(), sc(), texts.UNDER_WAY),
    ],
)
def test_every_other_binding_stays_and_the_reason_is_given(
    claim: Object, volume: Object | None, cls: Object | None, why: str
) -> None:
    assert refusal(claim, volume, cls) == why


@row("10.1 eligibility")
def test_a_dirty_claim_a_users_choice_and_a_running_pod_are_reasons_too() -> None:
    dirty = bound_pvc()
    dirty[1]["status"]["dataState"] = "Dirty"
    assert refusal(dirty, static(), sc()) == texts.MAY_HOLD_DATA
    named = bound_pvc()
    del named[1]["metadata"]["annotations"][BOUND_BY_CONTROLLER]
    assert refusal(named, static(), sc()) == texts.NAMED_BY_USER
    assert refusal(bound_pvc(), static(), sc(), pod("b", node="n1"), pod("a", node="n1")) == texts.in_use(
        ["db/a", "db/b"]
    )
    assert refusal(asked(), static(), sc(), under_way=True) is None


# --- the conditions -------------------------------------------------------------------------------------


@row("10.1 deleted")
def test_a_claim_being_deleted_drops_the_request_and_goes_on_as_usual() -> None:
    given = world(asked(deleted=True, finalizers=("x",), phase="Pending"), sc(), static()).sync_claim()
    assert ROLLBACK not in given.claim().meta.annotations
    assert given.claim().volume_name == "pv"
    assert given.claim().phase == "Bound"
    assert given.notices == []


@row("10.1 lost")
def test_a_lost_claim_drops_the_request() -> None:
    given = world(asked(phase="Lost"), sc(), static()).sync_claim()
    assert given.claim().meta.annotations == {BIND_COMPLETED: "yes", **BY_US}
    assert given.claim().phase == "Lost"
    assert (given.notices, given.writes) == ([], [(CLAIM, False)])


@row("10.1 nothing to undo")
def test_a_claim_with_nothing_to_undo_is_done_and_keeps_its_node() -> None:
    given = world(pvc(notes={**ASKED, **LINKS}), sc(), pv()).sync_claim()
    assert given.claim().meta.annotations == LINKS
    assert given.notices == COMPLETED
    assert given.writes == [(CLAIM, False)]


@row("10.1 nothing to undo")
@pytest.mark.parametrize("uid", [UID, f"rollback-{UID}"])
def test_a_volume_that_still_names_the_claim_is_something_to_undo(uid: str) -> None:
    given = world(pvc(notes=ASKED), sc(), dynamic(ref=ref(uid=uid))).sync_claim()
    assert ROLLBACK in given.claim().meta.annotations
    assert given.notices == [(WARNING, "RollbackStalled")]


@row("10.1 refused")
@pytest.mark.parametrize(
    ("claim", "others"),
    [
        (asked(clean=False), [static()]),
        (asked(), [static(), pod(node="n1")]),
        (asked(), [static(notes={})]),
        (asked(), []),
        (pvc(volume="pv", notes=ASKED), [pv()]),
    ],
    ids=["dirty", "in use", "reserved by a user", "volume gone", "named by the user"],
)
def test_a_request_that_may_not_be_granted_is_dropped_with_the_reason(claim: Object, others: list[Object]) -> None:
    given = world(claim, sc(), *others).sync_claim()
    assert ROLLBACK not in given.claim().meta.annotations
    assert given.claim().volume_name == "pv"
    assert given.notices == [(WARNING, "RollbackRejected")]
    assert given.writes == [(CLAIM, False)]
    assert given.messages[0].startswith("The binding is not undone: ")


@row("10.1 refused")
def test_a_claim_that_lost_its_volumes_name_is_not_taken_for_one_that_let_go() -> None:
    given = world(pvc(notes={**ASKED, BIND_COMPLETED: "yes"}), sc(), static()).sync_claim()
    assert given.notices == [(WARNING, "RollbackRejected")]
    assert given.volume().claim_ref.uid == UID


# --- the steps ------------------------------------------------------------------------------------------


@row("10.1 step 1", "10.1 step 2", "10.1 step 3", "10.1 step 5")
@pytest.mark.parametrize("policy", ["Retain", "Delete", "Recycle"])
def test_a_static_volume_is_free_again_whatever_its_policy(policy: str) -> None:
    given = world(asked(notes=LINKS), sc(), static(policy=policy), pvc("other")).sync_claim()
    assert given.claim().volume_name == ""
    assert given.claim().meta.annotations == {"mine": "kept"}
    assert given.status() == {"phase": "Pending"}
    assert (given.volume().claim_ref, given.volume().phase) == (None, "Available")
    assert given.volume().meta.annotations == {}
    assert given.notices == COMPLETED
    assert (given.calls, given.started) == ([], [])
    assert given.writes == [(CLAIM, False), (CLAIM, True), (VOLUME, False), (VOLUME, True), (CLAIM, False)]


@row("10.1 step 1")
def test_the_claim_lets_go_before_its_volume_and_keeps_the_request() -> None:
    given = world(asked(notes=LINKS), sc(), static())
    given.crash_after_writes = 1
    crash(given.sync_claim)
    assert given.claim().meta.annotations == {**ASKED, "mine": "kept"}
    assert given.claim().volume_name == ""
    assert given.volume().claim_ref.uid == UID


@row("10.1 step 3")
@pytest.mark.parametrize("by", ["volsched.io/disk", "csi.example.com"])
def test_a_provisioned_volume_is_handed_to_whoever_deletes_it(by: str) -> None:
    given = world(asked("pvc-uid-data"), sc(), dynamic(by=by)).sync_claim()
    volume = given.volume("pvc-uid-data")
    assert volume.claim_ref.uid == f"rollback-{UID}"
    assert (volume.claim_ref.namespace, volume.claim_ref.name) == ("db", "data")
    assert BINDING_STAMP not in volume.meta.annotations
    assert volume.meta.annotations[PROVISIONED_BY] == by
    given.sync_volume("pvc-uid-data")
    if by == "csi.example.com":
        assert given.volume("pvc-uid-data").phase == "Released"
        assert ROLLBACK in given.sync_claim().claim().meta.annotations
        del given.server.objects[VOLUME, "pvc-uid-data"]
    assert not given.has(VOLUME, "pvc-uid-data")
    assert given.sync_claim().notices[-1:] == COMPLETED
    assert ROLLBACK not in given.claim().meta.annotations


@row("10.1 step 3")
def test_every_volume_with_the_claims_uid_is_given_up() -> None:
    given = world(asked(), sc(), static(), static(name="second"), static(name="by-user", notes={})).sync_claim()
    assert given.volume("second").claim_ref is None
    assert given.volume("by-user").claim_ref.uid == ""
    assert given.notices == COMPLETED


@row("10.1 step 3")
def test_a_second_volume_that_would_not_be_deleted_is_freed_instead() -> None:
    kept = dynamic("second", policy="Retain")
    given = world(asked(), sc(), static(), kept).sync_claim()
    assert (given.volume("second").claim_ref, given.volume("second").phase) == (None, "Available")


@row("10.1 step 4")
def test_the_claim_waits_until_its_name_for_a_new_volume_is_free() -> None:
    given = world(asked("pvc-uid-data"), sc(provisioner="csi.example.com"), dynamic(by="csi.example.com"), pv("f"))
    given.sync_claim().sync_claim()
    (first, second) = [request for request in given.requests if isinstance(request, Notice)]
    assert (first.reason, first.patience_seconds) == ("RollbackStalled", 600)
    assert "pvc-uid-data" in second.message
    assert given.claim().volume_name == ""
    assert given.started == []


@row("10.1 step 4")
def test_while_it_waits_nothing_binds_or_provisions_the_claim() -> None:
    """Not even where somebody selects a node, or reserves a volume for it."""
    waiting = pvc(notes={**ASKED, **selected()})
    given = world(
        waiting, sc(provisioner="csi.example.com"), dynamic(), pv("for-it", ref=ref(uid=""))
    ).sync_claim()
    assert given.claim().volume_name == ""
    assert given.started == []
    assert given.volume("for-it").claim_ref.uid == ""


@row("10.1 step 5")
def test_a_claim_that_was_rolled_back_may_be_bound_again() -> None:
    given = world(asked(), sc(), static()).sync_claim()
    given.server.load(*pv("next", ref=ref(), notes=BY_US))
    given.sync_claim()
    assert (given.claim().volume_name, given.claim().phase) == ("next", "Bound")
    assert given.status()["dataState"] == "Clean"


def outcome(given: World) -> dict[Any, Manifest]:
    """All objects without versions."""
    return {
        place: {**stored, "metadata": {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}}
        for place, stored in given.server.objects.items()
    }


@row("10.1 step 1", "10.1 step 2", "10.1 step 3", "10.1 step 4", "10.1 step 5")
@pytest.mark.parametrize("bound_to", [static(), dynamic()], ids=["static", "provisioned"])
@pytest.mark.parametrize("writes", range(1, 8))
def test_a_crash_after_any_step_is_finished_by_the_next_syncs(bound_to: Object, writes: int) -> None:
    name = bound_to[1]["metadata"]["name"]
    untouched = world(asked(name, notes=LINKS), sc(), bound_to)
    untouched.settle()
    given = world(asked(name, notes=LINKS), sc(), bound_to)
    given.crash_after_writes = writes
    with suppress(CrashError):
        given.settle()
    given.crash_after_writes = None
    given.settle()
    assert outcome(given) == outcome(untouched)
    assert given.claim().volume_name == ""
    assert ROLLBACK not in given.claim().meta.annotations
    assert given.has(VOLUME, "pv") is (name == "pv")


@row("10.1 step 1")
@pytest.mark.parametrize("first", ["agent", "controller"])
def test_of_a_dirty_mark_and_a_rollback_in_the_same_moment_one_wins(first: str) -> None:
    """Both write the claim at the version they have read."""
    given = world(asked(), sc(), static())
    before = given.server.objects[CLAIM, KEY]
    mark = Update(CLAIM, {**before, "status": {**before["status"], "dataState": "Dirty"}}, status=True)

    def agent(after: World, request: Request) -> None:
        if isinstance(request, Update) and after.claim().data_state == "Clean" and first == "agent":
            after.server.update(mark)

    given.before_answer = agent
    given.sync_claim()
    if first == "controller":
        assert given.claim().volume_name == ""
        with pytest.raises(Exception, match="VersionError"):
            given.server.update(mark)
    else:
        assert len(given.errors) == 1
        assert (given.claim().volume_name, given.claim().data_state) == ("pv", "Dirty")
        assert given.sync_claim().notices == [(WARNING, "RollbackRejected")]


def test_a_volume_in_the_middle_of_a_rollback_is_not_reclaimed() -> None:
    given = world(asked(), sc(), static(policy="Delete"), rules=replace(RULES, safe_release=False))
    given.crash_after_writes = 2
    crash(given.sync_claim)
    given.crash_after_writes = None
    assert given.sync_volume().enqueued == [KEY]
    assert given.volume().phase == "Bound"
    assert given.started == []
