"""A leg lets go: what a release undoes and in which order, what it must keep, and what is not ours."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.binding.played_writes import (
    DELETED,
    OTHERS,
    RELEASED,
    annotated,
    data_state,
    done,
    half_bound,
    namesake,
    notes,
    phase_of_volume,
    played,
    reference,
    releasing,
    step,
)
from tests.binding.rule_scenes import (
    CLAIM_STREAM,
    VOLUME,
    VOLUME_STREAM,
    B,
    Scene,
    binding_state,
    bound,
    changed,
    claim_ref,
    manifest_at,
    prebound,
    scene,
    static_leg,
    without,
)
from volsched.binding.rules.effects import RELEASE, EffectWrite, LegOutcome
from volsched.binding.rules.phases import Guards, LegPhase
from volsched.binding.rules.reasons import CLAIM_GONE, HOLDS_DATA, KEPT, NOT_OURS
from volsched.binding.rules.safe_release import REASONS, SafeRow, Undecided
from volsched.kube.manifest import unbind_patch
from volsched.kube.meta import BINDING_STAMP, BOUND_BY_CONTROLLER, ROLLBACK


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
    assert outcome == LegOutcome(phase=LegPhase.RETAINED, reason=REASONS[SafeRow.NAMED])
    assert (writes, reference(after)) == ([], claim_ref())
    assert ROLLBACK not in notes(after, CLAIM_STREAM)


def test_where_a_claim_cannot_be_unbound_one_that_points_nowhere_is_released_all_the_same() -> None:
    _, outcome, after = played(RELEASE, releasing(), can_unbind=False)
    assert outcome == RELEASED
    assert reference(after) is None


def test_where_our_mark_means_nothing_a_volume_that_the_controller_calls_bound_is_kept() -> None:
    """Its next write gives the volume to the claim, and nothing of ours would stop it."""
    states = phase_of_volume(releasing(), "Bound")
    retained = LegOutcome(phase=LegPhase.RETAINED, reason=REASONS[SafeRow.HALF_BOUND])
    assert played(RELEASE, states, can_unbind=False) == ([], Undecided(SafeRow.HALF_BOUND), states)
    assert played(RELEASE, states, can_unbind=False, patient=False) == ([], retained, states)
    _, outcome, after = played(RELEASE, states)
    assert (outcome, reference(after)) == (RELEASED, None)


MEANWHILE: dict[str, tuple[Callable[[Scene], Scene], str]] = {
    "the claim is bound": (bound, KEPT),
    "the claim is bound, its data unknown": (lambda s: bound(s, data_state=None), HOLDS_DATA),
    "the claim is marked dirty": (lambda s: data_state(s, "Dirty"), HOLDS_DATA),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_mark_does_not_outlive_a_release_that_finds_the_leg_must_stay(what: str) -> None:
    """Somebody came between our mark and our next write. With the mark left on, no plan can use the claim."""
    change, reason = MEANWHILE[what]
    (mark,), _, states = played(RELEASE, releasing(), most=1)
    assert mark.patch == {"metadata": {"annotations": {ROLLBACK: B}}}
    _, outcome, after = played(RELEASE, change(states))
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
