"""The pod is bound last, what lands too late is undone, and a guard that is off changes its own answer alone."""

from collections.abc import Callable

import pytest

from tests.binding.played_writes import (
    DELETED,
    OTHERS,
    PLACED,
    RELEASED,
    annotated,
    committing,
    data_state,
    notes,
    planned,
    played,
    reference,
    releasing,
    step,
)
from tests.binding.rule_scenes import (
    BINDING,
    CLAIM_STREAM,
    CLAIM_UID,
    NODE,
    NODE_STREAM,
    POD_STREAM,
    VOLUME,
    VOLUME_STREAM,
    Scene,
    binding_state,
    bound,
    changed,
    joined_leg,
    manifest_at,
    prebound,
    scene,
    selected,
    static_leg,
    without,
)
from volsched.binding.rules.effects import ANNOTATE, BIND_POD, PREBIND, RELEASE, LegOutcome, PodOutcome
from volsched.binding.rules.late_writes import UNDO
from volsched.binding.rules.phases import Guards, LegPhase
from volsched.binding.rules.reasons import KEPT
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, ROLLBACK
from volsched.log.events.fold import BindingState


def test_the_pod_is_bound_to_the_node_once_every_leg_is() -> None:
    writes, outcome, after = played(BIND_POD, committing())
    assert [(write.kind, write.key, write.patch) for write in writes] == [
        ("Pod", "db/app", {"spec": {"nodeName": NODE}, "status": PLACED})
    ]
    assert outcome == PodOutcome(bound=True)
    assert step(BIND_POD, after) == PodOutcome(bound=True)


def test_a_nomination_ends_with_the_binding_that_keeps_it() -> None:
    nominated = changed(committing(), POD_STREAM, {"status": {"nominatedNodeName": NODE}})
    (write,), outcome, after = played(BIND_POD, nominated)
    assert write.patch["status"] == {**PLACED, "nominatedNodeName": None}
    assert outcome == PodOutcome(bound=True)
    assert "nominatedNodeName" not in manifest_at(after, POD_STREAM)["status"]


def test_a_pod_without_claims_to_bind_is_bound_at_once() -> None:
    _, outcome, _ = played(BIND_POD, scene(binding_state(phase="committing")))
    assert outcome == PodOutcome(bound=True)


def test_a_joined_leg_of_a_static_claim_does_not_keep_the_pod_from_its_node() -> None:
    leg = joined_leg("bound")._replace(volume=VOLUME)
    _, outcome, _ = played(BIND_POD, committing(leg))
    assert outcome == PodOutcome(bound=True)


REFUSED: dict[str, tuple[Callable[[Scene], Scene], str]] = {
    "node gone": (lambda s: without(s, NODE_STREAM), "failed to get node"),
    "pod gone": (lambda s: without(s, POD_STREAM), "pod does not exist any more"),
    "pod recreated": (lambda s: changed(s, POD_STREAM, {"metadata": {"uid": "x"}}), "pod does not exist any more"),
    "pod being deleted": (lambda s: changed(s, POD_STREAM, DELETED), "is being deleted"),
    "pod elsewhere": (lambda s: changed(s, POD_STREAM, {"spec": {"nodeName": "n2"}}), 'to node "n2" meanwhile'),
    "claim gone": (lambda s: without(s, CLAIM_STREAM), "persistentvolumeclaim"),
    "claim undone": (lambda s: annotated(s, **{ROLLBACK: "x"}), "undergoing rollback"),
    "volume stolen": (lambda s: changed(s, VOLUME_STREAM, OTHERS), "different PV"),
    "bind-completed dropped": (
        lambda s: changed(s, CLAIM_STREAM, {"metadata": {"annotations": {BIND_COMPLETED: None}}}),
        "is not bound any more",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_pod_is_not_bound_where_something_changed_at_the_last_moment(what: str) -> None:
    change, text = REFUSED[what]
    outcome = step(BIND_POD, change(committing()))
    assert isinstance(outcome, PodOutcome)
    assert not outcome.bound
    assert text in (outcome.reason or "")


@pytest.mark.parametrize("phase", ["prebinding", "waiting", "compensating"])
def test_the_pod_is_bound_only_while_the_binding_commits(phase: str) -> None:
    states = {**committing(), BINDING: binding_state(static_leg("bound"), phase=phase)}
    assert step(BIND_POD, states) is None


# What was written too late ----------------------------------------------------------------------------
def ended(leg_phase: str, phase: str = "rolled-back") -> Scene:
    return prebound(scene(binding_state(static_leg(leg_phase, open=False), phase=phase)))


@pytest.mark.parametrize("leg_phase", ["voided", "released"])
@pytest.mark.parametrize("phase", ["rolled-back", "compensating"])
def test_a_write_that_lands_after_its_leg_has_ended_is_undone(leg_phase: str, phase: str) -> None:
    writes, outcome, after = played(UNDO, ended(leg_phase, phase))
    assert len(writes) == 3
    assert (outcome, reference(after)) == (RELEASED, None)
    assert notes(after, CLAIM_STREAM) == {}


@pytest.mark.parametrize("leg_phase", ["assumed", "written", "bound", "releasing", "retained"])
def test_what_belongs_to_its_leg_is_not_undone(leg_phase: str) -> None:
    assert step(UNDO, ended(leg_phase)) is None


def test_a_late_write_that_somebody_else_has_written_over_is_left_to_them() -> None:
    assert step(UNDO, changed(ended("voided"), VOLUME_STREAM, OTHERS)) is None
    assert step(UNDO, annotated(ended("voided"), VOLUME_STREAM, **{BINDING_STAMP: "b2"})) is None


def test_a_late_write_of_which_the_claim_was_bound_is_kept() -> None:
    outcome = step(UNDO, bound(ended("voided")))
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=KEPT)


def test_nothing_is_undone_for_a_binding_that_is_not_known() -> None:
    assert step(UNDO, without(ended("voided"), BINDING)) is None


# Each guard alone -------------------------------------------------------------------------------------
GUARDED: dict[str, tuple[str, Callable[[], Scene]]] = {
    "precondition": (PREBIND, lambda: annotated(planned(PREBIND), VOLUME_STREAM, somebody="was here")),
    "dirty": (RELEASE, lambda: data_state(releasing(), "Dirty")),
    "stamp": (RELEASE, lambda: annotated(releasing(), VOLUME_STREAM, **{BINDING_STAMP: "b2"})),
}


@pytest.mark.parametrize("guard", ["lanes", "precondition", "dirty", "stamp"])
@pytest.mark.parametrize("case", GUARDED)
def test_a_guard_that_is_off_changes_its_own_answer_and_no_other(guard: str, case: str) -> None:
    kind, make = GUARDED[case]
    changes = step(kind, make(), guards=Guards(**{guard: False})) != step(kind, make())
    assert changes == (guard == case)


def test_guards_change_nothing_where_nothing_is_wrong() -> None:
    off = Guards(lanes=False, precondition=False, dirty=False, stamp=False)
    for kind, states in ((PREBIND, planned(PREBIND)), (ANNOTATE, planned(ANNOTATE)), (RELEASE, releasing())):
        assert played(kind, states, guards=off) == played(kind, states)


def test_scenes_are_what_acts_write() -> None:
    """The scenes of these tests put the same on the objects as the acts do, so neither can drift alone."""
    _, _, after = played(PREBIND, planned(PREBIND))
    assert manifest_at(after, VOLUME_STREAM) == manifest_at(prebound(planned(PREBIND)), VOLUME_STREAM)
    _, _, after = played(ANNOTATE, planned(ANNOTATE))
    assert manifest_at(after, CLAIM_STREAM) == manifest_at(selected(planned(ANNOTATE)), CLAIM_STREAM)
    assert isinstance(after[BINDING], BindingState)
    assert manifest_at(after, CLAIM_STREAM)["metadata"]["uid"] == CLAIM_UID
