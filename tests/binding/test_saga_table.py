"""Every state of a binding, with a leg in every state, under everything that can be said to it.

The tables are the specification: one per phase of the binding, a line per command, a column per phase
of the leg. A cell is what the one decision writes:

    .    nothing                            W V B F K   the leg is written, voided, bound, released, retained
    R    the leg is being released          f p         its assumption, the pod's assumption is taken off
    >r >p >w >c   the binding is reserved, prebinding, waiting, committing
    >C >x >z      committed, compensating, rolled back
    !    an effect is queued

States that no history leads to are in the tables too: whatever a store holds, a command answers.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import pytest

from tests.binding.rule_scenes import (
    BINDING,
    CLAIM_STREAM,
    DEADLINE,
    NODE_STREAM,
    POD_STREAM,
    B,
    Scene,
    binding_of,
    binding_state,
    completed,
    dynamic_leg,
    folded,
    held,
    joined_leg,
    scene,
    static_leg,
    without,
    written,
)
from volsched.binding.rules.effects import LegOutcome, PodOutcome, effects_of
from volsched.binding.rules.phases import SETTLED, Guards, LegPhase, Phase
from volsched.binding.rules.reservations import cancel, confirm, renew
from volsched.binding.rules.saga import (
    TIME_TO_WRITE_US,
    advance,
    fail,
    give_up_release,
    give_up_write,
    record_leg,
    record_pod,
    time_out,
)
from volsched.log.events.fold import Decision, LegState, States

LEGS = tuple(LegPhase)
Answer = Callable[[States], Decision]


def _record(phase: LegPhase, states: States) -> Decision:
    return record_leg(B, 0, LegOutcome(phase=phase, reason="so"), states)


# What is said to the binding. -------------------------------------------------------------------------
COMMANDS: Mapping[str, Answer] = {
    **{f"record {phase}": partial(_record, phase) for phase in LegPhase},
    "record a leg that is not there": lambda s: record_leg(B, 1, LegOutcome(phase=LegPhase.WRITTEN), s),
    "record the pod as bound": lambda s: record_pod(B, PodOutcome(bound=True), s),
    "record the pod as refused": lambda s: record_pod(B, PodOutcome(bound=False, reason="so"), s),
    "fail": lambda s: fail(B, "so", s),
    "time out, before the deadline": lambda s: time_out(B, DEADLINE - 1, s),
    "time out, at the deadline": lambda s: time_out(B, DEADLINE, s),
    "time out, after the deadline": lambda s: time_out(B, DEADLINE + 1, s),
    "give up the write": lambda s: give_up_write(B, 0, s),
    "give up a write that is not there": lambda s: give_up_write(B, 1, s),
    "give up the release": lambda s: give_up_release(B, 0, "8 attempts", s),
    "advance": lambda s: advance(B, s),
    "advance, claim bound": lambda s: advance(B, completed(s, binding_of(s).legs[0])),
    "advance, claim gone": lambda s: advance(B, without(s, CLAIM_STREAM)),
    "advance, pod gone": lambda s: advance(B, without(s, POD_STREAM)),
    "advance, node gone": lambda s: advance(B, without(s, NODE_STREAM)),
    "advance, retaining": lambda s: advance(B, _retaining(s)),
    "advance, lanes off": lambda s: advance(B, s, guards=Guards(lanes=False)),
    "another binding's": lambda s: fail("b2", "so", s),
    "confirm": lambda s: confirm(B, s, now=DEADLINE - 1, deadline=DEADLINE + 9),
    "confirm, too late": lambda s: confirm(B, s, now=DEADLINE, deadline=DEADLINE + 9),
    "renew": lambda s: renew(B, s, now=DEADLINE - 1, until=DEADLINE + 9),
    "renew, too late": lambda s: renew(B, s, now=DEADLINE, until=DEADLINE + 9),
    "cancel": lambda s: cancel(B, s, reason="so"),
}
FROM_EFFECTS = [name for name in COMMANDS if not name.startswith("advance")]
REACTIONS = [name for name in COMMANDS if name.startswith("advance")]

NEVER = ".       .       .       .       .       .       .       .       ."
# The tables. Columns:                 planned  assumed  joined  written bound  releasing voided released retained
OUTCOMES = {
    "record planned":                  NEVER,
    "record assumed":                  ".       .       .       .       .       .       .       .       .",
    "record joined":                   ".       .       .       .       .       .       .       .       .",
    "record written":                  ".       W       .       .       .       .       .       .       .",
    "record bound":                    ".       .       .       .       .       .       .       .       .",
    "record releasing":                ".       .       .       .       .       .       .       .       .",
    "record voided":                   ".       Vf      .       .       .       Vf      .       .       .",
    "record released":                 ".       .       .       .       .       Ff      .       .       .",
    "record retained":                 ".       .       .       .       .       Kf      .       .       .",
    "record a leg that is not there":  ".       .       .       .       .       .       .       .       .",
    "give up a write that is not there": ".       .     .       .       .       .       .       .       .",
    "give up the release":             ".       .       .       .       .       Kf      .       .       .",
    "another binding's":               ".       .       .       .       .       .       .       .       .",
}  # fmt: skip
"""What an effect brings home is the same in every open phase: it says what is so."""
ALWAYS_FAILS = ">x      >x      >x      >x      >x      >x      >x      >x      >x"
LEASE = dict.fromkeys(("confirm", "confirm, too late", "renew", "renew, too late", "cancel"), NEVER)
"""What is said of a reservation is nothing to what never was one, or is none any more."""
UNDER_WAY = LEASE | {
    "record the pod as bound":         NEVER,
    "record the pod as refused":       NEVER,
    "fail":                            ALWAYS_FAILS,
    "time out, before the deadline":   NEVER,
    "time out, at the deadline":       ALWAYS_FAILS,
    "time out, after the deadline":    ALWAYS_FAILS,
    "give up the write":               NEVER,
    "advance, pod gone":               ALWAYS_FAILS,
    "advance, node gone":              ALWAYS_FAILS,
}  # fmt: skip
LETS_GO = ">x      >xVf    >x      >x      >x      >x      >x      >x      >x"
TABLES: Mapping[Phase, Mapping[str, str]] = {
    Phase.RESERVED: OUTCOMES | {
        "record the pod as bound":     NEVER,
        "record the pod as refused":   NEVER,
        "fail":                        LETS_GO,
        "time out, before the deadline": NEVER,
        "time out, at the deadline":   LETS_GO,
        "time out, after the deadline": LETS_GO,
        "give up the write":           NEVER,
        "advance":                     ".       .       .       .       .       >x      >x      >x      >x",
        "advance, claim bound":        ".       >xVf    .       .       .       >x      >x      >x      >x",
        "advance, claim gone":         LETS_GO,
        "advance, pod gone":           LETS_GO,
        "advance, node gone":          LETS_GO,
        "advance, retaining":          ".       .       .       .       .       >x      >x      >x      >x",
        "advance, lanes off":          ".       .       .       .       .       >x      >x      >x      >x",
        "confirm":                     ">p!     >p!     >p      >p      >p      >p!     >p      >p      >p",
        "confirm, too late":           LETS_GO,
        "renew":                       ">r      >r      >r      >r      >r      >r      >r      >r      >r",
        "renew, too late":             LETS_GO,
        "cancel":                      LETS_GO,
    },
    Phase.PREBINDING: OUTCOMES | UNDER_WAY | {
        "advance":                     ".       .       >w      >w      >w>c!   >x      >x      >x      >x",
        "advance, claim bound":        ".       .       B>w>c!  B>w>c!  >w>c!   >x      >x      >x      >x",
        "advance, claim gone":         ALWAYS_FAILS,
        "advance, retaining":          ".       .       >w      >w      >w>c!   >x      >x      >x      >x",
        "advance, lanes off":          ".       .       >w      >w      >w>c!   >x      >x      >x      >x",
    },
    Phase.WAITING: OUTCOMES | UNDER_WAY | {
        "advance":                     ".       .       .       .       >c!     >x      >x      >x      >x",
        "advance, claim bound":        ".       .       B>c!    B>c!    >c!     >x      >x      >x      >x",
        "advance, claim gone":         ALWAYS_FAILS,
        "advance, retaining":          ".       .       .       .       >c!     >x      >x      >x      >x",
        "advance, lanes off":          ".       .       .       .       >c!     >x      >x      >x      >x",
    },
    Phase.COMMITTING: OUTCOMES | LEASE | {
        "record the pod as bound":     ">C      >C      >C      >C      >C      >C      >C      >C      >C",
        "record the pod as refused":   ALWAYS_FAILS,
        "fail":                        NEVER,
        "time out, before the deadline": NEVER,
        "time out, at the deadline":   NEVER,
        "time out, after the deadline": NEVER,
        "give up the write":           NEVER,
        "advance":                     NEVER,
        "advance, claim bound":        NEVER,
        "advance, claim gone":         NEVER,
        "advance, pod gone":           NEVER,
        "advance, node gone":          NEVER,
        "advance, retaining":          NEVER,
        "advance, lanes off":          NEVER,
    },
    Phase.COMPENSATING: OUTCOMES | LEASE | {
        "record the pod as bound":     NEVER,
        "record the pod as refused":   NEVER,
        "fail":                        NEVER,
        "time out, before the deadline": NEVER,
        "time out, at the deadline":   NEVER,
        "time out, after the deadline": NEVER,
        "give up the write":           ".       R!      .       .       .       .       .       .       .",
        "advance":                     "Vf      .       V       R!      R!      .       p>z     p>z     p>z",
        "advance, claim bound":        "Vf      .       V       R!      R!      .       p>z     p>z     p>z",
        "advance, claim gone":         "Vf      .       V       R!      R!      .       p>z     p>z     p>z",
        "advance, pod gone":           "Vf      .       V       R!      R!      .       >z      >z      >z",
        "advance, node gone":          "Vf      .       V       R!      R!      .       p>z     p>z     p>z",
        "advance, retaining":          "Vf      .       V       K       K       .       p>z     p>z     p>z",
        "advance, lanes off":          "Vf      R!      V       R!      R!      .       p>z     p>z     p>z",
    },
    Phase.COMMITTED: dict.fromkeys(COMMANDS, NEVER),
    Phase.ROLLED_BACK: dict.fromkeys(COMMANDS, NEVER),
}  # fmt: skip
TABLE = {
    (phase, leg, command): cell
    for phase, lines in TABLES.items()
    for command, line in lines.items()
    for leg, cell in zip(LEGS, line.split(), strict=True)
}
OF_DYNAMIC = {
    (Phase.RESERVED, LegPhase.ASSUMED, "advance, claim gone"): ">xV",
    (Phase.COMPENSATING, LegPhase.PLANNED, "advance, claim gone"): "V",
}
"""A claim that is gone has no assumption to be taken off, and a volume that was to be made has none either."""
STATES = list(product(Phase, LEGS))
KINDS = ("static", "dynamic")

_LEG_LETTERS = {
    "assumed": "A",
    "written": "W",
    "voided": "V",
    "bound": "B",
    "releasing": "R",
    "released": "F",
    "retained": "K",
}
_BINDING_LETTERS = {
    "reserved": "r", "prebinding": "p", "waiting": "w",
    "committing": "c", "committed": "C", "compensating": "x", "rolled-back": "z",
}  # fmt: skip


def cell_of(decision: Decision) -> str:
    """A decision as the tables write it; an event that they have no letter for is a KeyError."""
    letters = ""
    for event in decision.events:
        if event.type == "LegMoved":
            letters += _LEG_LETTERS[event.data["state"]]
        elif event.type == "BindingMoved":
            letters += ">" + _BINDING_LETTERS[event.data["state"]]
        else:
            letters += {"VolumeFreed": "f", "ClaimFreed": "f", "PodFreed": "p"}[event.type]
    return letters + "!" * len(decision.effects) or "."


def leg_in(phase: LegPhase, kind: str) -> LegState:
    is_open = phase not in SETTLED
    if phase is LegPhase.JOINED:
        return joined_leg()
    leg = static_leg(phase, open=is_open) if kind == "static" else dynamic_leg(phase, open=is_open)
    return leg._replace(volume="pvc-1") if kind == "dynamic" and phase is LegPhase.BOUND else leg


def scene_of(phase: Phase, leg_phase: LegPhase, kind: str = "static") -> Scene:
    """A binding of one leg, and the object written for it unless the leg is only assumed."""
    leg = leg_in(leg_phase, kind)
    states = scene(binding_state(leg, phase=phase))
    return states if leg_phase in (LegPhase.PLANNED, LegPhase.ASSUMED) else written(states, leg)


def _retaining(states: States) -> Scene:
    binding = binding_of(states)
    return {**states, BINDING: binding._replace(plan={**binding.plan, "on_failure": "retain"})}


def disagreements(table: Mapping[tuple[Phase, LegPhase, str], str], kind: str) -> Iterator[tuple[object, str]]:
    """Cells that say something else than the code does."""
    for (phase, leg, command), cell in table.items():
        found = cell_of(COMMANDS[command](scene_of(phase, leg, kind)))
        if found != cell:
            yield (phase, leg, command, cell), found


def test_the_tables_cover_every_phase_of_binding_and_leg_under_every_command() -> None:
    assert set(TABLE) == set(product(Phase, LegPhase, COMMANDS))
    assert len(TABLE) == 7 * 9 * len(COMMANDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", Phase)
def test_a_binding_does_what_its_table_says(phase: Phase, kind: str) -> None:
    whole = TABLE | (OF_DYNAMIC if kind == "dynamic" else {})
    mine = {key: cell for key, cell in whole.items() if key[0] is phase}
    assert dict(disagreements(mine, kind)) == {}


def test_a_flipped_cell_is_noticed_and_no_other() -> None:
    for key, cell in TABLE.items():
        wrong = "." if cell != "." else ">x"
        assert [found[0] for found in disagreements({key: wrong}, "static")] == [(*key, wrong)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("phase", "leg"), STATES)
class TestWhateverTheState:
    def test_the_same_command_gives_the_same_decision(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        for answer in COMMANDS.values():
            assert answer(scene_of(phase, leg, kind)) == answer(scene_of(phase, leg, kind))

    def test_a_repeated_command_yields_no_event(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        for name in FROM_EFFECTS:
            states = scene_of(phase, leg, kind)
            after = folded(states, COMMANDS[name](states))
            assert COMMANDS[name](after) == Decision(), name

    def test_reactions_come_to_an_end_and_then_stay_there(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        for name in REACTIONS:
            states, steps = scene_of(phase, leg, kind), 0
            while (decision := COMMANDS[name](states)).events:
                states, steps = folded(states, decision), steps + 1
                assert steps <= 5, name
            assert COMMANDS[name](states) == Decision()

    def test_a_leg_that_is_settled_never_moves_again(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        for name, answer in COMMANDS.items():
            moves = [event for event in answer(scene_of(phase, leg, kind)).events if event.type == "LegMoved"]
            assert not (leg in SETTLED and moves), name

    def test_an_open_flag_says_what_the_state_says(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        ends = {*SETTLED, Phase.COMMITTED, Phase.ROLLED_BACK}
        for answer in COMMANDS.values():
            for event in answer(scene_of(phase, leg, kind)).events:
                if event.type in ("LegMoved", "BindingMoved"):
                    assert event.data["open"] == (event.data["state"] not in ends)

    def test_every_event_names_its_binding(self, phase: Phase, leg: LegPhase, kind: str) -> None:
        for answer in COMMANDS.values():
            decision = answer(scene_of(phase, leg, kind))
            assert {event.binding for event in decision.events} <= {B}
            assert {effect.binding for effect in decision.effects} <= {B}


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.ROLLED_BACK])
def test_a_closed_binding_never_moves(phase: Phase) -> None:
    for leg, answer in product(LEGS, COMMANDS.values()):
        assert answer(scene_of(phase, leg)) == Decision()


def test_a_binding_that_compensates_never_goes_forward() -> None:
    for leg, kind, (name, answer) in product(LEGS, KINDS, COMMANDS.items()):
        for event in answer(scene_of(Phase.COMPENSATING, leg, kind)).events:
            if event.type == "BindingMoved":
                assert event.data["state"] == Phase.ROLLED_BACK, name
            elif event.type == "LegMoved":
                assert event.data["state"] != LegPhase.BOUND, name


def test_a_leg_whose_write_is_under_way_is_released_only_with_lanes_off() -> None:
    states = scene_of(Phase.COMPENSATING, LegPhase.ASSUMED)
    assert advance(B, states) == Decision()
    (effect,) = advance(B, states, guards=Guards(lanes=False)).effects
    assert (effect.kind, effect.lane) == ("release", f"{B}/0/release")


def test_a_release_is_queued_in_the_lane_of_its_write() -> None:
    (effect,) = advance(B, scene_of(Phase.COMPENSATING, LegPhase.WRITTEN)).effects
    assert (effect.key, effect.lane, effect.queue) == (f"{B}/0/release", f"{B}/0", "release")


@pytest.mark.parametrize("kind", KINDS)
def test_work_queued_with_a_decision_is_the_work_of_the_state_it_leads_to(kind: str) -> None:
    """What recovery would insert is what was queued in the first place."""
    for phase, leg in STATES:
        states = scene_of(phase, leg, kind)
        decision = advance(B, completed(states, binding_of(states).legs[0]))
        after = folded(states, decision)
        if decision.effects:
            assert decision.effects == effects_of(B, binding_of(after)), (phase, leg)


def test_one_refused_leg_of_three_fails_the_binding_with_its_reason() -> None:
    legs = (static_leg("bound"), static_leg("voided", open=False, reason="Conflict"), static_leg("written"))
    (event,) = advance(B, scene(binding_state(*legs))).events
    assert (event.data["state"], event.data["reason"]) == ("compensating", "Conflict")


def test_a_binding_waits_until_its_last_leg_is_written_and_commits_with_its_last_bound() -> None:
    states = written(scene(binding_state(static_leg("written"), static_leg("assumed"))), static_leg())
    assert cell_of(advance(B, states)) == "."
    both = {**states, BINDING: binding_state(static_leg("written"), static_leg("bound"), phase="waiting")}
    assert cell_of(advance(B, both)) == "."
    assert cell_of(advance(B, completed(both, static_leg()))) == "B>c!"


def test_a_bound_leg_that_is_lost_again_fails_the_binding_without_waiting_for_the_others() -> None:
    """As the reference, which looks at all of them at every tick."""
    legs = (static_leg("bound"), static_leg("written"))
    states = written(scene(binding_state(*legs, phase="waiting")), static_leg())
    assert cell_of(advance(B, {**states, NODE_STREAM: held({"metadata": {"name": "n1"}})})) == ">x"


def test_a_joined_leg_that_is_bound_is_given_up_without_a_release() -> None:
    leg = joined_leg("bound", volume=None)._replace(volume="pv")
    assert cell_of(advance(B, scene(binding_state(leg, phase="compensating")))) == "V"


def test_legs_are_compensated_one_after_the_other_and_the_end_waits_for_all() -> None:
    legs = (static_leg("bound"), joined_leg(), static_leg("written"), static_leg("assumed"))
    states: Scene = scene(binding_state(*legs, phase="compensating"))
    cells = []
    while (decision := advance(B, states)).events:
        cells.append(cell_of(decision))
        states = folded(states, decision)
    assert cells == ["R!", "V", "R!"]
    for index, outcome in ((0, LegPhase.RETAINED), (2, LegPhase.RELEASED), (3, LegPhase.VOIDED)):
        assert advance(B, states) == Decision()
        states = folded(states, record_leg(B, index, LegOutcome(phase=outcome), states))
    assert cell_of(advance(B, states)) == "p>z"


def test_without_any_time_to_wait_the_writes_are_made_before_the_binding_fails() -> None:
    """A timeout of nothing means to write, and then to fail at once."""
    for phase, at_once in ((Phase.PREBINDING, False), (Phase.WAITING, True)):
        states = scene_of(phase, LegPhase.ASSUMED)
        binding = binding_of(states)
        hurried = {**states, BINDING: binding._replace(plan={**binding.plan, "deadline": binding.planned_at})}
        assert bool(time_out(B, binding.planned_at + 1, hurried).events) is at_once
        assert time_out(B, binding.planned_at + TIME_TO_WRITE_US, hurried).events
