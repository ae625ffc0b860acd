"""The condition table of the wait loop: a case per row, and that their order is the table's."""

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.binding.rule_scenes import (
    CLAIM,
    CLAIM_STREAM,
    NODE,
    NODE_STREAM,
    POD,
    POD_STREAM,
    VOLUME,
    VOLUME_STREAM,
    Scene,
    binding_of,
    binding_state,
    bound,
    changed,
    claim_ref,
    dynamic_leg,
    joined_leg,
    on_host,
    prebound,
    provisioned,
    scene,
    selected,
    static_leg,
    without,
)
from volsched.binding.rules import leg_conditions
from volsched.binding.rules.leg_conditions import WAIT, Bound, Failed, Verdict
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, ROLLBACK, SELECTED_NODE
from volsched.log.events.fold import LegState, ObjectState

ELSEWHERE = {"spec": {"nodeAffinity": on_host("n2")}}
DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


def judged(states: Scene, rules: ModuleType = leg_conditions) -> Verdict:
    """Rows 1 and 2, then those of the binding's leg: as the saga asks them."""
    binding = binding_of(states)
    verdict: Verdict = rules.judge_pod(binding, states) or rules.judge_leg(binding, binding.legs[0], states)
    return verdict


def waiting(leg: LegState) -> Scene:
    states = scene(binding_state(leg, phase="waiting"))
    return selected(states) if leg.dynamic else prebound(states)


def static(**kw: str) -> Scene:
    """Written, and the claim not bound yet: row 7."""
    return waiting(static_leg("written", **kw))


def dynamic(**kw: str) -> Scene:
    """Annotated, and nothing provisioned yet: row 14."""
    return waiting(dynamic_leg("written", **kw))


def at_version(states: Scene, stream: str, version: str) -> Scene:
    """As a foreign cluster shows the object."""
    return changed(states, stream, {"metadata": {"resourceVersion": version}})


def reset_reference(states: Scene) -> Scene:
    return changed(states, VOLUME_STREAM, {"spec": {"claimRef": None}})


def no_annotations(states: Scene) -> Scene:
    return changed(states, CLAIM_STREAM, {"metadata": {"annotations": None}})


def unselected(states: Scene) -> Scene:
    return changed(states, CLAIM_STREAM, {"metadata": {"annotations": {SELECTED_NODE: None}}})


def half_bound(states: Scene, volume: str) -> Scene:
    return changed(states, CLAIM_STREAM, {"spec": {"volumeName": volume}})


def annotated(states: Scene, key: str) -> Scene:
    return changed(states, CLAIM_STREAM, {"metadata": {"annotations": {key: "uid-app"}}})


def fails(text: str) -> Failed:
    return Failed(text)


OUT_OF_REACH = f'pv "{{}}" node affinity doesn\'t match node "{NODE}": no matching NodeSelectorTerms'
ROWS: dict[str, tuple[Callable[[], Scene], Verdict]] = {
    "1: the node is gone": (
        lambda: without(static(), NODE_STREAM),
        fails(f'failed to get node "{NODE}": node "{NODE}" not found'),
    ),
    "2: the pod is gone": (
        lambda: without(static(), POD_STREAM),
        fails(f'pod does not exist any more: pod "{POD}" not found'),
    ),
    "2 [D]: the pod was recreated": (
        lambda: changed(static(), POD_STREAM, {"metadata": {"uid": "uid-other"}}),
        fails(f'pod does not exist any more: pod "{POD}" not found'),
    ),
    "2 [D]: the pod is being deleted": (
        lambda: changed(static(), POD_STREAM, DELETED),
        fails(f'pod "{POD}" is being deleted'),
    ),
    "3: the volume is gone": (
        lambda: without(static(), VOLUME_STREAM),
        fails(f'failed to check binding: persistentvolume "{VOLUME}" not found'),
    ),
    "3: the claim is gone": (
        lambda: without(static(), CLAIM_STREAM),
        fails(f'failed to check binding: persistentvolumeclaim "{CLAIM}" not found'),
    ),
    "3 [D]: the claim was recreated": (
        lambda: changed(static(), CLAIM_STREAM, {"metadata": {"uid": "uid-other"}}),
        fails(f'failed to check binding: persistentvolumeclaim "{CLAIM}" not found'),
    ),
    "4: we see the volume as it was before our write": (
        lambda: at_version(reset_reference(static(written_rv="10")), VOLUME_STREAM, "9"),
        WAIT,
    ),
    "4: versions are compared as numbers": (
        lambda: bound(at_version(static(written_rv="9"), VOLUME_STREAM, "10")),
        Bound(VOLUME),
    ),
    "5: the node's labels do not match the volume any more": (
        lambda: changed(static(), NODE_STREAM, {"metadata": {"labels": {HOSTNAME: "renamed"}}}),
        fails(OUT_OF_REACH.format(VOLUME)),
    ),
    "6: the volume's claimRef is gone": (
        lambda: reset_reference(static()),
        fails(f'ClaimRef got reset for pv "{VOLUME}"'),
    ),
    "6: the volume's claimRef has no uid": (
        lambda: changed(static(), VOLUME_STREAM, {"spec": {"claimRef": {"uid": None}}}),
        fails(f'ClaimRef got reset for pv "{VOLUME}"'),
    ),
    "6a [D]: the volume was given to another claim": (
        lambda: changed(static(), VOLUME_STREAM, {"spec": {"claimRef": claim_ref("uid-other", "other")}}),
        fails(f'PVC "{CLAIM}" got bound to a different PV'),
    ),
    "6a [D]: the claim is bound to another volume": (
        lambda: bound(static(), "pv-other"),
        fails(f'PVC "{CLAIM}" got bound to a different PV'),
    ),
    "7: the claim is not bound": (static, WAIT),
    "7: a volume name alone does not bind the claim": (lambda: half_bound(static(), VOLUME), WAIT),
    "7: a completed binding without a volume name does not bind it": (
        lambda: annotated(static(), BIND_COMPLETED),
        WAIT,
    ),
    "8: the claim to provision is gone": (
        lambda: without(dynamic(), CLAIM_STREAM),
        fails(f'failed to check provisioning pvc: persistentvolumeclaim "{CLAIM}" not found'),
    ),
    "8 [D]: the claim to provision was recreated": (
        lambda: changed(dynamic(), CLAIM_STREAM, {"metadata": {"uid": "uid-other"}}),
        fails(f'failed to check provisioning pvc: persistentvolumeclaim "{CLAIM}" not found'),
    ),
    "9: we see the claim as it was before our write": (
        lambda: at_version(unselected(dynamic(written_rv="10")), CLAIM_STREAM, "9"),
        WAIT,
    ),
    "10: the claim has no annotations at all": (
        lambda: no_annotations(dynamic()),
        fails('selectedNode annotation reset for PVC "data"'),
    ),
    "11: the selected node was taken off": (
        lambda: unselected(dynamic()),
        fails('provisioning failed for PVC "data"'),
    ),
    "11: another node was selected": (
        lambda: selected(dynamic(), "n2"),
        fails('provisioning failed for PVC "data"'),
    ),
    "12: the claim's volume is not there yet": (lambda: half_bound(dynamic(), "pvc-1"), WAIT),
    "12: also where the claim is bound to it": (lambda: bound(dynamic(), "pvc-1"), WAIT),
    "13: the provisioned volume cannot be reached": (
        lambda: half_bound(provisioned(dynamic(), host="n2"), "pvc-1"),
        fails(OUT_OF_REACH.format("pvc-1")),
    ),
    "14: nothing is provisioned yet": (dynamic, WAIT),
    "14: the claim to provision is half bound": (lambda: half_bound(provisioned(dynamic()), "pvc-1"), WAIT),
    "end: static and bound": (lambda: bound(static()), Bound(VOLUME)),
    "end: provisioned and bound": (lambda: bound(provisioned(dynamic()), "pvc-1"), Bound("pvc-1")),
    "[D] rollback of a static claim": (
        lambda: annotated(static(), ROLLBACK),
        fails(f'PVC "{CLAIM}" is undergoing rollback'),
    ),
    "[D] rollback of a claim to provision": (
        lambda: annotated(dynamic(), ROLLBACK),
        fails(f'PVC "{CLAIM}" is undergoing rollback'),
    ),
    "[D] the claim is lost": (
        lambda: changed(static(), CLAIM_STREAM, {"status": {"phase": "Lost"}}),
        fails(f'PVC "{CLAIM}" is lost'),
    ),
    "[D] the claim is being deleted": (
        lambda: changed(static(), CLAIM_STREAM, DELETED),
        fails(f'PVC "{CLAIM}" is being deleted'),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    make, verdict = ROWS[row]
    assert judged(make()) == verdict


STATIC_ORDER: list[tuple[str, Callable[[Scene], Scene], str | None]] = [
    ("row 1", lambda s: without(s, NODE_STREAM), "failed to get node"),
    ("row 2", lambda s: without(s, POD_STREAM), "pod does not exist"),
    ("row 3, claim", lambda s: changed(s, CLAIM_STREAM, {"metadata": {"uid": "x"}}), "persistentvolumeclaim"),
    ("rollback", lambda s: annotated(s, ROLLBACK), "undergoing rollback"),
    ("row 4", lambda s: at_version(s, VOLUME_STREAM, "9"), None),
    ("row 5", lambda s: changed(s, VOLUME_STREAM, ELSEWHERE), "node affinity"),
    ("row 6", reset_reference, "ClaimRef got reset"),
    ("row 6a", lambda s: bound(s, "pv-other"), "different PV"),
]
DYNAMIC_ORDER: list[tuple[str, Callable[[Scene], Scene], str | None]] = [
    *STATIC_ORDER[:4],
    ("row 9", lambda s: at_version(s, CLAIM_STREAM, "9"), None),
    ("row 11", lambda s: selected(s, "n2"), "provisioning failed"),
    ("row 12", lambda s: without(half_bound(s, "pvc-1"), "volume/pvc-1"), None),
    ("row 14", lambda s: s, None),
]


@pytest.mark.parametrize(("make", "order"), [(static, STATIC_ORDER), (dynamic, DYNAMIC_ORDER)])
def test_the_first_row_that_matches_decides_and_a_wait_hides_the_rows_below(
    make: Callable[..., Scene], order: list[tuple[str, Callable[[Scene], Scene], str | None]]
) -> None:
    """From the bottom of the table up, one more condition each time: the topmost of them is always the answer."""
    states = make(written_rv="10")
    for name, apply, text in reversed(order):
        states = apply(states)
        verdict = judged(states)
        if text is None:
            assert verdict == WAIT, name
        else:
            assert isinstance(verdict, Failed), name
            assert text in verdict.why, name


def test_the_first_tick_is_done_where_the_claim_was_bound_before() -> None:
    assert judged(bound(static())) == Bound(VOLUME)


OF_RESERVATIONS = {"judge_reserved", "_changed"}
"""Functions of the module that are no part of the table; test_reservations judges by them."""
SHORT_CUTS = {"not name"}
"""Conditions without which the next one gives the same answer."""


def without_condition(number: int) -> ModuleType | None:
    """The module with its n-th condition never true; None where it has no more."""
    tree = ast.parse(Path(leg_conditions.__file__ or "").read_text())
    parts = [it for it in tree.body if getattr(it, "name", None) not in OF_RESERVATIONS]
    conditions = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.If | ast.IfExp)]
    if number >= len(conditions):
        return None
    mutant = ModuleType(f"mutant_{number}")
    mutant.taken_out = conditions[number].test  # type: ignore[attr-defined]
    conditions[number].test = ast.copy_location(ast.Constant(value=False), conditions[number].test)
    exec(compile(tree, "mutant", "exec"), mutant.__dict__)
    return mutant


def answer(states: Scene, rules: ModuleType) -> str:
    try:
        return str(judged(states, rules))
    except (AttributeError, TypeError) as error:
        return repr(error)  # a mutant that takes what is not there for an object


def test_every_condition_of_the_table_is_needed_by_a_case() -> None:
    """By mutation: with any one condition taken out, some case of this file is judged otherwise."""
    scenes = [make() for make, _ in ROWS.values()] + joined_scenes()
    number, unneeded = 0, set()
    while (mutant := without_condition(number)) is not None:
        if not any(answer(states, mutant) != answer(states, leg_conditions) for states in scenes):
            unneeded.add(ast.unparse(mutant.taken_out))
        number += 1
    assert number >= 20
    assert unneeded == SHORT_CUTS


@pytest.mark.parametrize("stream", [NODE_STREAM, POD_STREAM, CLAIM_STREAM, VOLUME_STREAM])
def test_a_deleted_object_is_as_gone_as_one_that_never_was(stream: str) -> None:
    states = static()
    assert judged({**states, stream: ObjectState(version=9, rv=9)}) == judged(without(states, stream))


# Legs that are not written ----------------------------------------------------------------------------
def test_an_assumed_leg_is_not_judged_by_what_it_has_not_written_yet() -> None:
    states = scene(binding_state(static_leg("assumed")))
    assert judged(states) == WAIT
    assert judged(bound(states, "pv-other")) == WAIT
    assert isinstance(judged(without(states, CLAIM_STREAM)), Failed)
    assert isinstance(judged(annotated(states, ROLLBACK)), Failed)


# Joined legs ------------------------------------------------------------------------------------------
def joined(phase: str = "joined", *, owner: str | None = "waiting") -> Scene:
    states = scene(binding_state(joined_leg(phase), phase="waiting"))
    if owner is not None:
        states["binding/b0"] = binding_state(static_leg("written"), phase=owner)
    return prebound(states, stamp="b0")


def joined_scenes() -> list[Scene]:
    assumed = bound(scene(binding_state(static_leg("assumed"))))
    return [joined(), bound(joined()), bound(joined("bound")), joined(owner="rolled-back"), assumed, counted_on()]


def counted_on() -> Scene:
    """A leg of a claim that was bound when it was planned, and is not any more."""
    return scene(binding_state(joined_leg()._replace(joins=None), phase="waiting"))


def test_a_leg_that_counts_on_a_bound_claim_fails_when_it_is_not_bound_any_more() -> None:
    assert judged(counted_on()) == Failed(f'PVC "{CLAIM}" is not bound any more')
    assert judged(bound(counted_on())) == Bound(VOLUME)


def test_a_joined_leg_waits_for_the_claim() -> None:
    assert judged(joined()) == WAIT


def test_a_joined_leg_is_bound_with_whatever_volume_the_claim_got() -> None:
    assert judged(bound(joined())) == Bound(VOLUME)


def test_a_joined_leg_fails_where_the_claims_volume_is_out_of_reach() -> None:
    states = changed(bound(joined()), VOLUME_STREAM, ELSEWHERE)
    assert judged(states) == Failed(OUT_OF_REACH.format(VOLUME))


def test_a_joined_leg_fails_with_the_rollback_of_its_owner() -> None:
    verdict = judged(joined(owner="rolled-back"))
    assert isinstance(verdict, Failed)
    assert "b0" in verdict.why


def test_a_joined_leg_outlives_its_owner_where_the_claim_was_bound_all_the_same() -> None:
    assert judged(bound(joined(owner="rolled-back"))) == Bound(VOLUME)


@pytest.mark.parametrize("owner", ["prebinding", "waiting", "committing", "committed", "compensating", None])
def test_a_joined_leg_waits_while_its_owner_has_not_rolled_back(owner: str | None) -> None:
    assert judged(joined(owner=owner)) == WAIT


def test_a_joined_leg_that_is_bound_is_judged_by_the_claim_and_not_by_what_it_never_wrote() -> None:
    """The claim of a static owner has no selected node, and none is asked for: this leg selected nothing."""
    assert judged(bound(joined("bound"))) == Bound(VOLUME)
