"""The writes of a leg and of the pod: what each does, that doing it again changes nothing, what guards are for.

An act is carried out by `played`: ask, write, ask again, until there is an outcome. A crash is an act that stops
after some of its writes and is begun anew.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.binding.rule_scenes import (
    BINDING,
    CLAIM,
    CLAIM_STREAM,
    CLAIM_UID,
    NODE,
    NODE_STREAM,
    POD_STREAM,
    RV,
    VOLUME,
    VOLUME_STREAM,
    B,
    Scene,
    binding_state,
    bound,
    changed,
    claim_ref,
    dynamic_leg,
    joined_leg,
    manifest_at,
    prebound,
    provisioned,
    scene,
    selected,
    static_leg,
    without,
)
from volsched.binding.rules.effect_writes import (
    CANNOT_UNBIND,
    CLAIM_GONE,
    HOLDS_DATA,
    KEPT,
    NOT_OURS,
    STILL_PROVISIONING,
    EffectWrite,
    Outcome,
    next_step,
    unbind_patch,
)
from volsched.binding.rules.late_writes import UNDO
from volsched.binding.rules.phases import Guards, LegPhase
from volsched.binding.rules.saga import ANNOTATE, BIND_POD, PREBIND, RELEASE, LegOutcome, PodOutcome
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BINDING_STAMP,
    BOUND_BY_CONTROLLER,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.log.events.fold import BindingState, ObjectState
from volsched.log.events.streams import stream_of

NOW = "2026-01-01T00:00:00Z"
PLACED = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW}]}
RELEASED = LegOutcome(phase=LegPhase.RELEASED)
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
OTHERS = {"spec": {"claimRef": claim_ref("uid-other", "other")}}


def step(kind: str, states: Scene, **kw: Any) -> EffectWrite | Outcome | None:
    return next_step(kind, B, 0, states, now=NOW, **kw)


def done(states: Scene, write: EffectWrite) -> Scene:
    """The write is carried out, if the object is still at the version it asks for."""
    stream = stream_of(write.kind, write.key)
    state = states[stream]
    assert isinstance(state, ObjectState)
    assert str(state.rv) == write.version
    return changed(states, stream, write.patch)


def played(
    kind: str, states: Scene, *, most: int = 8, **kw: Any
) -> tuple[list[EffectWrite], EffectWrite | Outcome | None, Scene]:
    """Ask and write until there is an outcome, or until `most` writes are done."""
    writes: list[EffectWrite] = []
    while isinstance(answer := step(kind, states, **kw), EffectWrite) and len(writes) < most:
        writes.append(answer)
        states = done(states, answer)
    return writes, answer, states


def notes(states: Scene, stream: str) -> dict[str, str]:
    found: dict[str, str] = manifest_at(states, stream)["metadata"].get("annotations", {})
    return found


def reference(states: Scene) -> dict[str, str] | None:
    found: dict[str, str] | None = manifest_at(states, VOLUME_STREAM)["spec"].get("claimRef")
    return found


def annotated(states: Scene, stream: str = CLAIM_STREAM, **annotations: str) -> Scene:
    return changed(states, stream, {"metadata": {"annotations": annotations}})


def half_bound(states: Scene, volume: str = VOLUME) -> Scene:
    marks = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}}
    return changed(states, CLAIM_STREAM, {"spec": {"volumeName": volume}, **marks})


def data_state(states: Scene, value: str) -> Scene:
    return changed(states, CLAIM_STREAM, {"status": {"dataState": value}})


def namesake(states: Scene) -> Scene:
    return changed(states, CLAIM_STREAM, {"metadata": {"uid": "uid-namesake"}})


def phase_of_volume(states: Scene, phase: str) -> Scene:
    return changed(states, VOLUME_STREAM, {"status": {"phase": phase}})


# Forward ----------------------------------------------------------------------------------------------
FORWARD = {PREBIND: static_leg, ANNOTATE: dynamic_leg}
WRITTEN_STREAM = {PREBIND: VOLUME_STREAM, ANNOTATE: CLAIM_STREAM}


def planned(kind: str, phase: str = "prebinding") -> Scene:
    return scene(binding_state(FORWARD[kind](), phase=phase))


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


# Release of a static leg ------------------------------------------------------------------------------
def releasing(*, by_controller: bool = True) -> Scene:
    states = scene(binding_state(static_leg("releasing"), phase="compensating"))
    return prebound(states, by_controller=by_controller)


def test_a_release_marks_the_claim_frees_the_volume_and_takes_the_mark_off_last() -> None:
    writes, outcome, after = played(RELEASE, releasing())
    assert [write.kind for write in writes] == [
        "PersistentVolumeClaim",
        "PersistentVolume",
        "PersistentVolumeClaim",
    ]
    assert outcome == RELEASED
    assert reference(after) is None
    assert notes(after, VOLUME_STREAM) == {}
    assert notes(after, CLAIM_STREAM) == {}


def test_a_half_bound_claim_lets_go_of_the_volume_before_the_volume_of_the_claim() -> None:
    writes, outcome, after = played(RELEASE, half_bound(releasing()))
    assert [write.kind for write in writes] == [
        "PersistentVolumeClaim", "PersistentVolumeClaim", "PersistentVolume", "PersistentVolumeClaim",
    ]  # fmt: skip
    assert outcome == RELEASED
    assert reference(after) is None
    assert "volumeName" not in manifest_at(after, CLAIM_STREAM)["spec"]
    assert notes(after, CLAIM_STREAM) == {}


@pytest.mark.parametrize("make", [releasing, lambda: half_bound(releasing())])
def test_the_claim_is_marked_as_long_as_the_volume_and_it_do_not_agree(make: Callable[[], Scene]) -> None:
    """While the mark is on, nobody else completes the binding: it is the first write and the last."""
    states, writes = make(), 0
    while isinstance(answer := step(RELEASE, states), EffectWrite):
        states, writes = done(states, answer), writes + 1
        if reference(states) is None and isinstance(step(RELEASE, states), EffectWrite):
            assert ROLLBACK in notes(states, CLAIM_STREAM)
    assert writes >= 3


@pytest.mark.parametrize("crash_after", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("half", [False, True])
def test_a_release_that_crashed_after_any_write_goes_on_from_there(crash_after: int, half: bool) -> None:
    before = half_bound(releasing()) if half else releasing()
    whole, _, end = played(RELEASE, before)
    first, _, crashed = played(RELEASE, before, most=crash_after)
    rest, outcome, after = played(RELEASE, crashed)
    assert first + rest == whole
    assert outcome == RELEASED
    assert after == end


def test_a_volume_that_a_user_reserved_stays_reserved_and_only_loses_its_uid() -> None:
    writes, outcome, after = played(RELEASE, releasing(by_controller=False))
    assert len(writes) == 3
    assert outcome == RELEASED
    assert reference(after) == claim_ref(None)
    assert notes(after, VOLUME_STREAM) == {}


def test_unbinding_frees_what_the_system_bound_and_nothing_that_a_user_wrote() -> None:
    assert unbind_patch(manifest_at(releasing(), VOLUME_STREAM))["spec"] == {"claimRef": None}
    reserved = releasing(by_controller=False)
    assert unbind_patch(manifest_at(reserved, VOLUME_STREAM))["spec"] == {"claimRef": {"uid": None}}


@pytest.mark.parametrize(("state", "reason"), [("Clean", KEPT), ("Dirty", HOLDS_DATA), (None, HOLDS_DATA)])
def test_a_bound_claim_is_never_unbound_and_unknown_data_counts_as_data(state: str | None, reason: str) -> None:
    states = bound(releasing(), data_state=state)
    assert played(RELEASE, states) == ([], LegOutcome(phase=LegPhase.RETAINED, reason=reason), states)


@pytest.mark.parametrize("half", [False, True])
def test_a_claim_marked_dirty_keeps_its_volume_unless_the_guard_is_off(half: bool) -> None:
    states = data_state(half_bound(releasing()) if half else releasing(), "Dirty")
    assert played(RELEASE, states) == ([], LegOutcome(phase=LegPhase.RETAINED, reason=HOLDS_DATA), states)
    _, outcome, after = played(RELEASE, states, guards=Guards(dirty=False))
    assert outcome == RELEASED
    assert reference(after) is None


def test_with_the_dirty_guard_off_unknown_data_passes_for_clean() -> None:
    outcome = step(RELEASE, bound(releasing(), data_state=None), guards=Guards(dirty=False))
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=KEPT)


def test_where_a_claim_cannot_be_unbound_a_half_bound_one_is_retained_and_not_left_marked() -> None:
    states = half_bound(releasing())
    writes, outcome, after = played(RELEASE, states, can_unbind=False)
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=CANNOT_UNBIND)
    assert (writes, reference(after)) == ([], claim_ref())
    assert ROLLBACK not in notes(after, CLAIM_STREAM)


def test_where_a_claim_cannot_be_unbound_one_that_points_nowhere_is_released_all_the_same() -> None:
    _, outcome, after = played(RELEASE, releasing(), can_unbind=False)
    assert outcome == RELEASED
    assert reference(after) is None


def test_where_our_mark_means_nothing_a_volume_that_the_controller_calls_bound_is_kept() -> None:
    """Its next write gives the volume to the claim, and nothing of ours would stop it."""
    states = phase_of_volume(releasing(), "Bound")
    retained = LegOutcome(phase=LegPhase.RETAINED, reason=CANNOT_UNBIND)
    assert played(RELEASE, states, can_unbind=False) == ([], retained, states)
    _, outcome, after = played(RELEASE, states)
    assert (outcome, reference(after)) == (RELEASED, None)


MEANWHILE: dict[str, tuple[Callable[[Scene], Scene], str, bool]] = {
    "the claim is bound": (bound, KEPT, True),
    "the claim is bound, its data unknown": (lambda s: bound(s, data_state=None), HOLDS_DATA, True),
    "the claim is marked dirty": (lambda s: data_state(s, "Dirty"), HOLDS_DATA, True),
    "the claim is half bound for good": (half_bound, CANNOT_UNBIND, False),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_mark_does_not_outlive_a_release_that_finds_the_leg_must_stay(what: str) -> None:
    """Somebody came between our mark and our next write. With the mark left on, no plan can use the claim."""
    change, reason, can_unbind = MEANWHILE[what]
    (mark,), _, states = played(RELEASE, releasing(), most=1)
    assert mark.patch == {"metadata": {"annotations": {ROLLBACK: B}}}
    _, outcome, after = played(RELEASE, change(states), can_unbind=can_unbind)
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=reason)
    assert ROLLBACK not in notes(after, CLAIM_STREAM)
    assert reference(after) == claim_ref()


def test_a_mark_that_somebody_else_put_on_is_used_and_left_on() -> None:
    writes, outcome, after = played(RELEASE, annotated(releasing(), **{ROLLBACK: "uid-other-pod"}))
    assert [write.kind for write in writes] == ["PersistentVolume"]
    assert outcome == RELEASED
    assert notes(after, CLAIM_STREAM) == {ROLLBACK: "uid-other-pod"}


NOT_WRITTEN_BY_US: dict[str, tuple[Callable[[Scene], Scene], LegOutcome]] = {
    "the volume is gone": (
        lambda s: without(s, VOLUME_STREAM),
        LegOutcome(phase=LegPhase.RELEASED, reason=f'PersistentVolume "{VOLUME}" is gone'),
    ),
    "the volume is free again": (
        lambda s: changed(s, VOLUME_STREAM, {"spec": {"claimRef": None}, "metadata": {"annotations": None}}),
        RELEASED,
    ),
    "another binding has written it since": (
        lambda s: annotated(s, VOLUME_STREAM, **{BINDING_STAMP: "b2"}),
        LegOutcome(phase=LegPhase.RETAINED, reason=NOT_OURS),
    ),
    "somebody without stamps has written it since": (
        lambda s: changed(s, VOLUME_STREAM, {"metadata": {"annotations": {BINDING_STAMP: None}}}),
        LegOutcome(phase=LegPhase.RETAINED, reason=NOT_OURS),
    ),
    "another claim has it, and our stamp was left on": (
        lambda s: changed(s, VOLUME_STREAM, OTHERS),
        LegOutcome(phase=LegPhase.RETAINED, reason=NOT_OURS),
    ),
}


@pytest.mark.parametrize("what", NOT_WRITTEN_BY_US)
@pytest.mark.parametrize("is_marked", [False, True])
def test_what_is_not_ours_any_more_is_not_touched(what: str, is_marked: bool) -> None:
    change, expected = NOT_WRITTEN_BY_US[what]
    states = annotated(releasing(), **{ROLLBACK: B}) if is_marked else releasing()
    writes, outcome, after = played(RELEASE, change(states))
    assert outcome == expected
    assert [write.kind for write in writes] == (["PersistentVolumeClaim"] if is_marked else [])
    assert notes(after, CLAIM_STREAM) == {}


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"claimRef": None}, None),
        ({"claimRef": {"uid": None}}, claim_ref(None)),
    ],
)
def test_a_volume_that_was_freed_with_our_stamp_left_on_loses_the_stamp_and_nothing_else(
    patch: dict[str, Any], left: dict[str, str] | None
) -> None:
    """As the PV controller frees it: it takes its own mark off and does not know ours."""
    unmarked = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}}
    _, outcome, after = played(RELEASE, changed(releasing(), VOLUME_STREAM, {"spec": patch, **unmarked}))
    assert (outcome, reference(after)) == (RELEASED, left)
    assert notes(after, VOLUME_STREAM) == {}
    assert notes(after, CLAIM_STREAM) == {}


def test_with_the_stamp_guard_off_a_volume_that_names_the_claim_is_undone_whoever_wrote_it() -> None:
    states = annotated(releasing(), VOLUME_STREAM, **{BINDING_STAMP: "b2"})
    _, outcome, after = played(RELEASE, states, guards=Guards(stamp=False))
    assert outcome == RELEASED
    assert reference(after) is None


def test_a_claim_bound_to_another_volume_is_left_alone_and_ours_is_freed() -> None:
    states = bound(releasing(), "pv-other", data_state="Dirty")
    writes, outcome, after = played(RELEASE, states)
    assert [write.kind for write in writes] == ["PersistentVolume"]
    assert (outcome, reference(after)) == (RELEASED, None)
    assert after[CLAIM_STREAM] == states[CLAIM_STREAM]


def test_a_claim_half_bound_to_another_volume_keeps_that() -> None:
    states = half_bound(releasing(), "pv-other")
    _, outcome, after = played(RELEASE, states)
    assert (outcome, reference(after)) == (RELEASED, None)
    assert after[CLAIM_STREAM] == states[CLAIM_STREAM]


@pytest.mark.parametrize("gone", [lambda s: without(s, CLAIM_STREAM), namesake])
def test_the_volume_of_a_claim_that_is_gone_is_freed_if_it_was_never_bound(gone: Callable[[Scene], Scene]) -> None:
    writes, outcome, after = played(RELEASE, gone(releasing()))
    assert [write.kind for write in writes] == ["PersistentVolume"]
    assert (outcome, reference(after)) == (RELEASED, None)


@pytest.mark.parametrize("gone", [lambda s: without(s, CLAIM_STREAM), namesake])
@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed"])
def test_the_volume_of_a_claim_that_is_gone_may_hold_its_data(gone: Callable[[Scene], Scene], phase: str) -> None:
    """The claim would say whether it was dirty. Unknown is unsafe: the volume is not offered again."""
    states = phase_of_volume(gone(releasing()), phase)
    assert played(RELEASE, states) == ([], LegOutcome(phase=LegPhase.RETAINED, reason=CLAIM_GONE), states)


def test_a_claim_that_is_being_deleted_is_not_written_any_more() -> None:
    writes, outcome, _ = played(RELEASE, changed(releasing(), CLAIM_STREAM, DELETED))
    assert [write.kind for write in writes] == ["PersistentVolume"]
    assert outcome == RELEASED


@pytest.mark.parametrize("phase", [phase for phase in LegPhase if phase is not LegPhase.RELEASING])
def test_a_leg_is_released_only_while_it_is_being_released(phase: LegPhase) -> None:
    states = prebound(scene(binding_state(static_leg(phase), phase="compensating")))
    assert step(RELEASE, states) is None


# Release of a dynamic leg -----------------------------------------------------------------------------
def releasing_dynamic() -> Scene:
    return selected(scene(binding_state(dynamic_leg("releasing"), phase="compensating")))


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


# The pod ----------------------------------------------------------------------------------------------
def committing(*legs: Any) -> Scene:
    """A binding of these legs, each complete."""
    return bound(prebound(scene(binding_state(*(legs or (static_leg("bound"),)), phase="committing"))))


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
    "pod made anew": (lambda s: changed(s, POD_STREAM, {"metadata": {"uid": "x"}}), "pod does not exist any more"),
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
