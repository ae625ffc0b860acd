"""A claim that was to be provisioned lets go of its node, unless a provisioner may be at work on it."""

from collections.abc import Callable

import pytest

from tests.binding.played_writes import (
    RELEASED,
    annotated,
    half_bound,
    namesake,
    notes,
    played,
    releasing_dynamic,
    step,
)
from tests.binding.rule_scenes import (
    CLAIM,
    CLAIM_STREAM,
    Scene,
    binding_state,
    bound,
    dynamic_leg,
    provisioned,
    scene,
    selected,
    without,
)
from volsched.binding.rules.effects import RELEASE, LegOutcome
from volsched.binding.rules.phases import Guards, LegPhase
from volsched.binding.rules.reasons import HOLDS_DATA, KEPT, STILL_PROVISIONING
from volsched.kube.meta import BETA_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER


def test_a_claim_that_nobody_provisions_yet_loses_its_node_and_our_stamp() -> None:
    writes, outcome, after = played(RELEASE, releasing_dynamic())
    assert len(writes) == 1
    assert outcome == RELEASED
    assert notes(after, CLAIM_STREAM) == {}
    assert step(RELEASE, after) == RELEASED


@pytest.mark.parametrize("gone", [lambda s: without(s, CLAIM_STREAM), namesake])
def test_a_claim_to_provision_that_is_gone_is_released(gone: Callable[[Scene], Scene]) -> None:
    writes, outcome, _ = played(RELEASE, gone(releasing_dynamic()))
    assert writes == []
    assert outcome == LegOutcome(phase=LegPhase.RELEASED, reason=f'PersistentVolumeClaim "{CLAIM}" is gone')


@pytest.mark.parametrize("key", [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER])
def test_a_claim_that_a_provisioner_was_asked_for_is_undecided(key: str) -> None:
    outcome = step(RELEASE, annotated(releasing_dynamic(), **{key: "csi.example.com"}))
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=STILL_PROVISIONING)


def test_a_claim_that_names_its_new_volume_is_undecided() -> None:
    states = half_bound(provisioned(releasing_dynamic()), "pvc-1")
    assert step(RELEASE, states) == LegOutcome(phase=LegPhase.RETAINED, reason=STILL_PROVISIONING)


@pytest.mark.parametrize(("state", "reason"), [("Clean", KEPT), ("Dirty", HOLDS_DATA), (None, HOLDS_DATA)])
def test_a_provisioned_and_bound_claim_is_kept(state: str | None, reason: str) -> None:
    states = bound(provisioned(releasing_dynamic()), "pvc-1", data_state=state)
    assert step(RELEASE, states) == LegOutcome(phase=LegPhase.RETAINED, reason=reason)


@pytest.mark.parametrize("stamp", ["b2", None])
def test_a_selected_node_without_our_stamp_stays_unless_the_guard_is_off(stamp: str | None) -> None:
    states = scene(binding_state(dynamic_leg("releasing"), phase="compensating"))
    states = selected(states, "n2", stamp=stamp)
    assert played(RELEASE, states) == ([], RELEASED, states)
    _, outcome, after = played(RELEASE, states, guards=Guards(stamp=False))
    assert outcome == RELEASED
    assert SELECTED_NODE not in notes(after, CLAIM_STREAM)
