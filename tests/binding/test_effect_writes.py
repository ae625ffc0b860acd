"""The writes of a leg that is bound: what each does, and that doing it again changes nothing."""

import pytest

from tests.binding.played_writes import (
    FORWARD,
    NOW,
    WRITTEN_STREAM,
    annotated,
    namesake,
    notes,
    planned,
    played,
    reference,
    step,
)
from tests.binding.rule_scenes import (
    BINDING,
    CLAIM,
    CLAIM_STREAM,
    NODE,
    RV,
    VOLUME,
    VOLUME_STREAM,
    B,
    binding_state,
    changed,
    claim_ref,
    prebound,
    scene,
    static_leg,
    without,
)
from volsched.binding.rules.effect_writes import next_step
from volsched.binding.rules.effects import ANNOTATE, BIND_POD, PREBIND, RELEASE, EffectWrite, LegOutcome
from volsched.binding.rules.phases import Guards, LegPhase
from volsched.kube.meta import BINDING_STAMP, BOUND_BY_CONTROLLER, SELECTED_NODE


def test_prebind_points_the_volume_at_the_claim_and_stamps_it() -> None:
    writes, outcome, after = played(PREBIND, planned(PREBIND))
    assert [(write.kind, write.key, write.version) for write in writes] == [("PersistentVolume", VOLUME, str(RV))]
    assert reference(after) == claim_ref()
    assert notes(after, VOLUME_STREAM) == {BOUND_BY_CONTROLLER: "yes", BINDING_STAMP: B}
    assert outcome == LegOutcome(phase=LegPhase.WRITTEN)


def test_annotate_selects_the_node_and_stamps_the_claim() -> None:
    writes, outcome, after = played(ANNOTATE, planned(ANNOTATE))
    assert [(write.kind, write.key) for write in writes] == [("PersistentVolumeClaim", CLAIM)]
    assert notes(after, CLAIM_STREAM) == {SELECTED_NODE: NODE, BINDING_STAMP: B}
    assert outcome == LegOutcome(phase=LegPhase.WRITTEN)


def test_a_volume_that_a_user_reserved_gets_the_uid_and_the_stamp_but_no_mark_of_ours() -> None:
    states = scene(binding_state(static_leg()._replace(rv=str(RV + 1))))
    reserved = changed(states, VOLUME_STREAM, {"spec": {"claimRef": claim_ref(None)}})
    _, outcome, after = played(PREBIND, reserved)
    assert outcome == LegOutcome(phase=LegPhase.WRITTEN)
    assert reference(after) == claim_ref()
    assert notes(after, VOLUME_STREAM) == {BINDING_STAMP: B}


@pytest.mark.parametrize("kind", FORWARD)
def test_the_version_of_a_foreign_cluster_is_the_precondition_and_is_reported(kind: str) -> None:
    """Its numbers are not ours: the object is at 7 here and at 42 there."""
    leg = FORWARD[kind]()._replace(rv="42")
    stream = WRITTEN_STREAM[kind]
    states = changed(scene(binding_state(leg)), stream, {"metadata": {"resourceVersion": "42"}})
    write = step(kind, states)
    assert isinstance(write, EffectWrite)
    assert write.version == "42"
    answered = changed(changed(states, stream, write.patch), stream, {"metadata": {"resourceVersion": "43"}})
    assert step(kind, answered) == LegOutcome(phase=LegPhase.WRITTEN, rv="43")


@pytest.mark.parametrize("kind", FORWARD)
def test_after_a_crash_behind_the_write_the_stamp_says_that_it_is_done(kind: str) -> None:
    _, _, after = played(kind, planned(kind))
    assert step(kind, after) == LegOutcome(phase=LegPhase.WRITTEN)


@pytest.mark.parametrize("kind", FORWARD)
def test_a_write_that_happened_is_reported_even_if_the_binding_has_failed(kind: str) -> None:
    _, _, after = played(kind, planned(kind))
    failed = {**after, BINDING: binding_state(FORWARD[kind](), phase="compensating")}
    assert step(kind, failed) == LegOutcome(phase=LegPhase.WRITTEN)


@pytest.mark.parametrize("kind", FORWARD)
def test_a_binding_that_has_failed_writes_nothing_more(kind: str) -> None:
    assert step(kind, planned(kind, "compensating")) == LegOutcome(phase=LegPhase.VOIDED, reason="it failed")


@pytest.mark.parametrize("kind", FORWARD)
def test_an_object_that_is_gone_voids_its_leg(kind: str) -> None:
    outcome = step(kind, without(planned(kind), WRITTEN_STREAM[kind]))
    assert isinstance(outcome, LegOutcome)
    assert outcome.phase is LegPhase.VOIDED
    assert "not found" in (outcome.reason or "")


def test_a_namesake_of_the_claim_is_not_annotated() -> None:
    outcome = step(ANNOTATE, namesake(planned(ANNOTATE)))
    assert isinstance(outcome, LegOutcome)
    assert outcome.phase is LegPhase.VOIDED


@pytest.mark.parametrize("kind", FORWARD)
def test_an_object_that_somebody_changed_since_the_plan_voids_its_leg_unless_the_guard_is_off(kind: str) -> None:
    states = annotated(planned(kind), WRITTEN_STREAM[kind], somebody="was here")
    outcome = step(kind, states)
    assert isinstance(outcome, LegOutcome)
    assert outcome.phase is LegPhase.VOIDED
    assert "Conflict" in (outcome.reason or "")
    assert isinstance(step(kind, states, guards=Guards(precondition=False)), EffectWrite)


@pytest.mark.parametrize("kind", FORWARD)
@pytest.mark.parametrize("phase", [phase for phase in LegPhase if phase is not LegPhase.ASSUMED])
def test_the_write_of_a_leg_that_has_moved_on_is_void(kind: str, phase: LegPhase) -> None:
    assert step(kind, scene(binding_state(FORWARD[kind](phase)))) is None


@pytest.mark.parametrize("kind", [PREBIND, ANNOTATE, RELEASE, BIND_POD])
@pytest.mark.parametrize("phase", ["committed", "rolled-back"])
def test_nothing_is_done_for_a_closed_binding_or_for_none(kind: str, phase: str) -> None:
    leg = static_leg("releasing")
    assert step(kind, prebound(scene(binding_state(leg, phase=phase)))) is None
    assert next_step(kind, "unknown", 0, scene(binding_state(leg)), now=NOW) is None
