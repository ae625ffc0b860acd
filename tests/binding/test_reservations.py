"""A reservation is held while all is as it was; the table says what ends it, and its end leaves nothing behind."""

from collections.abc import Callable

import pytest

from tests.binding.rule_scenes import (
    BINDING,
    CLAIM_STREAM,
    DEADLINE,
    NODE,
    NODE_STREAM,
    POD_STREAM,
    VOLUME_STREAM,
    B,
    Scene,
    binding_of,
    binding_state,
    bound,
    changed,
    dynamic_leg,
    folded,
    prebound,
    scene,
    static_leg,
    without,
)
from volsched.binding.rules.effects import effects_of
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.binding.rules.reservations import GatedError, cancel, confirm, renew
from volsched.binding.rules.saga import TIME_TO_BIND_US, TIME_TO_WRITE_US, advance, fail, time_out
from volsched.log.events.fold import NOTHING, Decision, LegState, ObjectState

STATIC, DYNAMIC = static_leg(), dynamic_leg()
Change = Callable[[Scene], Scene]


def placed(node: str) -> Change:
    return lambda states: changed(states, POD_STREAM, {"spec": {"nodeName": node}})


def labelled(stream: str) -> Change:
    return lambda states: changed(states, stream, {"metadata": {"labels": {"touched": "yes"}}})


def taken(states: Scene) -> Scene:
    return prebound(states, uid="somebody", stamp=None)


# what happens                     whose leg  how the reservation ends; None: it is kept
LOSSES: list[tuple[str, Change, LegState, str | None]] = [
    ("nothing",                     lambda s: s,                          STATIC, None),
    ("nothing",                     lambda s: s,                          DYNAMIC, None),
    ("the node says something",     labelled(NODE_STREAM),                STATIC, None),
    ("the pod says something",      labelled(POD_STREAM),                 STATIC, None),
    ("the claim says something",    labelled(CLAIM_STREAM),               STATIC, None),
    ("the claim says something",    labelled(CLAIM_STREAM),               DYNAMIC, "was changed by somebody else"),
    ("the volume is changed",       labelled(VOLUME_STREAM),              STATIC, "was changed by somebody else"),
    ("the volume is changed",       labelled(VOLUME_STREAM),              DYNAMIC, None),
    ("the volume is taken",         taken,                                STATIC, "was changed by somebody else"),
    ("the volume is gone",          lambda s: without(s, VOLUME_STREAM),  STATIC, 'pv "pv" not found'),
    ("the claim is gone",           lambda s: without(s, CLAIM_STREAM),   STATIC, "not found"),
    ("the claim is gone",           lambda s: without(s, CLAIM_STREAM),   DYNAMIC, "not found"),
    ("the claim is bound",          lambda s: bound(s, "other"),          STATIC, "was bound meanwhile"),
    ("the pod is gone",             lambda s: without(s, POD_STREAM),     STATIC, "does not exist any more"),
    ("the node is gone",            lambda s: without(s, NODE_STREAM),    STATIC, "failed to get node"),
    ("the pod runs elsewhere",      placed("n9"),                         STATIC, 'was bound to node "n9"'),
]  # fmt: skip


def reserved(leg: LegState = STATIC) -> Scene:
    return scene(binding_state(leg, phase="reserved"))


def at_rest(states: Scene, first: Decision) -> Scene:
    """With the decision, and all that follows from it in the same transaction."""
    decision = first
    while decision.events:
        states = folded(states, decision)
        decision = advance(B, states)
    return states


@pytest.mark.parametrize(("what", "change", "leg", "why"), LOSSES)
def test_a_reservation_is_lost_when_what_it_holds_changes(
    what: str, change: Change, leg: LegState, why: str | None
) -> None:
    states = change(reserved(leg))
    decision = advance(B, states)
    assert decision.effects == ()
    if why is None:
        assert decision == NOTHING, what
        return
    after = at_rest(states, decision)
    ended = binding_of(after)
    assert (ended.state, ended.open, [it.state for it in ended.legs]) == ("rolled-back", False, ["voided"])
    assert why in (ended.reason or "")
    # A confirmation that comes in the same breath is answered with the loss, and not with a write.
    assert confirm(B, states, now=0, deadline=DEADLINE) == decision


@pytest.mark.parametrize("leg", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "end",
    [
        lambda s: cancel(B, s, reason="so"),
        lambda s: fail(B, "so", s),
        lambda s: time_out(B, DEADLINE, s),
        lambda s: confirm(B, s, now=DEADLINE, deadline=DEADLINE + 5),
        lambda s: renew(B, s, now=DEADLINE, until=DEADLINE + 5),
    ],
    ids=["cancel", "fail", "time out", "confirm too late", "renew too late"],
)
def test_however_it_ends_nothing_is_assumed_and_nothing_is_queued(
    end: Callable[[Scene], Decision], leg: LegState
) -> None:
    states = reserved(leg)
    assert effects_of(B, binding_of(states)) == ()
    first = end(states)
    after = at_rest(states, first)
    assert first.effects == ()
    assert binding_of(after).state == Phase.ROLLED_BACK
    assert [it.assumed for it in after.values() if isinstance(it, ObjectState) and it.assumed] == []


def test_confirmed_it_is_a_binding_like_any_other() -> None:
    states = reserved()
    decision = confirm(B, states, now=1, deadline=DEADLINE + 100)
    after = folded(states, decision)
    assert binding_of(after).state == Phase.PREBINDING
    assert binding_of(after).plan["deadline"] == DEADLINE + 100
    assert decision.effects == effects_of(B, binding_of(after)) != ()
    assert confirm(B, after, now=2, deadline=DEADLINE + 200) == NOTHING
    assert cancel(B, after, reason="too late") == NOTHING


def test_without_claims_only_the_pod_is_left_to_be_bound() -> None:
    states = scene(binding_state(phase="reserved"))
    decision = confirm(B, states, now=1, deadline=DEADLINE)
    assert [it.data["state"] for it in decision.events] == ["committing"]
    assert [it.kind for it in decision.effects] == ["bind_pod"]


def test_a_pod_that_somebody_binds_to_the_reserved_node_confirms_it() -> None:
    states = placed(NODE)(reserved())
    decision = advance(B, states)
    assert [it.data["state"] for it in decision.events] == ["prebinding"]
    assert [it.kind for it in decision.effects] == ["prebind"]
    # The pod is there, and waits for its volumes: that the lease ends is no reason to give them up.
    assert time_out(B, DEADLINE + TIME_TO_WRITE_US, folded(states, decision)) == NOTHING
    assert time_out(B, DEADLINE + TIME_TO_BIND_US, folded(states, decision)) != NOTHING


def test_a_gated_pod_is_not_bound_but_its_reservation_stays() -> None:
    states = changed(reserved(), POD_STREAM, {"spec": {"schedulingGates": [{"name": "quota"}]}})
    with pytest.raises(GatedError, match=r"scheduling gates \(quota\)"):
        confirm(B, states, now=1, deadline=DEADLINE)
    assert advance(B, states) == NOTHING


def test_a_renewed_lease_ends_later_and_saying_it_twice_is_nothing() -> None:
    states = reserved()
    after = folded(states, renew(B, states, now=1, until=DEADLINE + 50))
    assert time_out(B, DEADLINE, after) == NOTHING
    assert time_out(B, DEADLINE + 50, after) != NOTHING
    assert renew(B, after, now=2, until=DEADLINE + 50) == NOTHING


def test_a_leg_that_an_older_program_has_written_is_released_and_not_forgotten() -> None:
    """A program that knows no reservations may have queued the writes of one when it recovered."""
    states = prebound(reserved(static_leg(LegPhase.WRITTEN)))
    after = at_rest(states, cancel(B, states, reason="so"))
    (leg,) = binding_of(after).legs
    assert (leg.state, binding_of(after).open) == ("releasing", True)


def test_a_leg_that_was_given_up_ends_the_reservation() -> None:
    held = binding_state(replace_leg(LegPhase.VOIDED), phase="reserved")
    decision = advance(B, {**reserved(), BINDING: held})
    assert [it.data["state"] for it in decision.events] == ["compensating"]


def replace_leg(phase: LegPhase) -> LegState:
    return STATIC._replace(state=phase, open=False, reason="refused")
