"""Claims and volumes in odd states, one test each: what the PV controller does with them."""

from dataclasses import replace
from typing import Any

from tests.pv_controller.controller_world import (
    DISK,
    KEY,
    RULES,
    bound_pvc,
    node,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    selected,
    world,
)
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, ROLLBACK, SELECTED_NODE
from volsched.pv_controller.rules import CLAIM, PARITY, VOLUME

BY_US = {BOUND_BY_CONTROLLER: "yes"}


def test_a_delayed_claim_and_a_volume_reserved_for_it_are_bound_without_pod_or_node() -> None:
    after = world(pvc(), sc(), pv(ref=ref(uid=""))).sync_claim()
    assert (after.claim().phase, after.volume().phase) == ("Bound", "Bound")


def test_a_free_volume_that_appears_is_not_taken_once_a_node_is_selected() -> None:
    after = world(pvc(notes=selected()), sc(provisioner="csi.example.com"), pv()).sync_claim()
    assert after.claim().volume_name == ""
    assert after.started


def test_a_volume_named_by_the_user_is_taken_without_asking_selector_and_node() -> None:
    elsewhere: dict[str, Any] = {"required": {"nodeSelectorTerms": []}}
    claim = pvc(volume="pv", selector={"matchLabels": {"a": "b"}})
    assert world(claim, sc(), pv(nodeAffinity=elsewhere)).sync_claim().claim().phase == "Bound"
    for odd in ({"size": "1Gi"}, {"cls": "x"}, {"volumeMode": "Block"}, {"modes": ("ReadOnlyMany",)}):
        assert world(claim, sc(), pv(**odd)).sync_claim().notices == [("Warning", "VolumeMismatch")]


def test_a_volume_reserved_by_uid_of_another_mode_is_never_bound() -> None:
    after = world(pvc(), sc(), pv(ref=ref(), volumeMode="Block"))
    after.settle()
    assert after.claim().volume_name == ""
    assert ("Warning", "VolumeMismatch") in after.notices


def test_a_retained_volume_is_released_for_ever_and_not_given_to_a_namesake() -> None:
    after = world(pvc(uid="uid-new"), sc(), pv(ref=ref(uid="uid-old"), phase="Bound"))
    after.settle()
    assert after.volume().phase == "Released"
    assert after.claim().volume_name == ""


def test_of_two_volumes_for_one_claim_the_loser_is_deleted_or_freed() -> None:
    rivals = (
        provisioned_pv("a", ref=ref(), phase="Pending"),
        provisioned_pv("b", ref=ref(), phase="Pending"),
        provisioned_pv("c", ref=ref(), phase="Pending", policy="Retain", notes=BY_US),
    )
    after = world(pvc(), sc(), *rivals)
    after.settle()
    assert after.claim().volume_name == "a"
    assert not after.has(VOLUME, "b")
    assert (after.volume("c").phase, after.volume("c").claim_ref) == ("Available", None)


def test_a_claim_that_the_cache_misses_keeps_its_volume() -> None:
    given = world(bound_pvc(), sc(), pv(ref=ref(), phase="Bound", policy="Delete"))
    given.unseen.add((CLAIM, KEY))
    assert given.sync_volume().volume().phase == "Bound"
    assert given.calls == []


def test_a_bound_claim_that_lost_bind_completed_is_bound_again() -> None:
    after = world(pvc(volume="pv", phase="Bound", notes=BY_US), sc(), pv(ref=ref(), phase="Bound")).sync_claim()
    assert BIND_COMPLETED in after.claim().meta.annotations
    assert (after.claim().volume_name, after.claim().phase) == ("pv", "Bound")


def test_a_lost_claim_whose_volume_is_made_again_is_bound_again() -> None:
    after = world(bound_pvc(), sc()).sync_claim()
    assert after.claim().phase == "Lost"
    after.server.load(*pv(ref=ref(), phase="Pending"))
    assert after.sync_claim().claim().phase == "Bound"


def test_a_selected_node_that_is_gone_stays_selected() -> None:
    after = world(pvc(notes=selected("gone")), sc(provisioner=DISK.name), node()).sync_claim()
    assert after.claim().meta.annotations[SELECTED_NODE] == "gone"


def test_a_dirty_claim_is_not_rolled_back_and_the_request_is_dropped() -> None:
    after = world(bound_pvc(clean=False, notes={ROLLBACK: ""}), sc(), pv(ref=ref(), notes=BY_US)).sync_claim()
    assert ROLLBACK not in after.claim().meta.annotations
    assert after.claim().volume_name == "pv"


def test_a_static_volume_with_policy_delete_is_not_deleted_by_a_rollback() -> None:
    given = pv(ref=ref(), notes=BY_US, policy="Delete", phase="Bound")
    after = world(bound_pvc(notes={ROLLBACK: ""}), sc(), given)
    after.settle()
    assert (after.volume().phase, after.calls) == ("Available", [])


def test_a_released_volume_of_a_living_claim_is_never_deleted_by_us() -> None:
    objects = (bound_pvc(), sc(), pv(ref=ref(), phase="Released", policy="Delete"))
    ours = world(*objects)
    ours.unseen.add((CLAIM, KEY))
    assert ours.sync_volume().volume().phase == "Bound"
    reference = world(*objects, rules=replace(PARITY, plugins=RULES.plugins))
    reference.unseen.add((CLAIM, KEY))
    assert not reference.sync_volume().has(VOLUME, "pv")
