"""The effects of a binding: their kinds, the objects that each reads, its writes and its outcomes.

An effect is work that the log queues with the event that needs it (`log/effects.py`). `effect_writes` finds its
next write or its outcome, the executor carries it out, and `saga` records the outcome.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volsched.binding.rules.phases import LegPhase, Phase
from volsched.kube.manifest import uid
from volsched.log.events.fold import (
    BindingState,
    LegState,
    NewEffect,
    ObjectState,
    States,
    living,
    node_stream,
    pod_stream,
)

PREBIND, ANNOTATE, RELEASE, BIND_POD = "prebind", "annotate", "release", "bind_pod"
"""Kinds of effects; each has the queue of its name."""
NOMINATE, UNNOMINATE = "nominate", "unnominate"
"""Kinds before a staged binding's first write (in the queue of writes) and after its rollback (releases)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegOutcome:
    """The result of a leg's write or release."""

    phase: LegPhase
    reason: str | None = None
    rv: str | None = None
    given: bool = False
    """Whether the volume pointed at the claim before: nothing was written, so the assumption must be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutcome:
    bound: bool
    reason: str | None = None
    leg: int | None = None
    """The leg that prevents the pod's binding."""
    stays_free: bool = False
    """Whether the pod's own scheduler places it: its claims are bound and its gate is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NominationOutcome:
    """The pod shows its future node, or no longer does; `reason`: why it cannot."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectWrite:
    """A merge patch of one object, refused unless the object is at `version`."""

    kind: str
    key: str
    patch: Mapping[str, Any]
    version: str
    status: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWrite:
    """A harmless write of one object at `version`, so that a late write made on that version fails."""

    kind: str
    key: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWrite:
    """The removal of our scheduling gate from the pod; refused unless the pod is at `version`."""

    key: str
    version: str
    kind: str = "Pod"


ClusterWrite = EffectWrite | FenceWrite | GateWrite
Outcome = LegOutcome | PodOutcome | NominationOutcome


def effects_of(binding: str, state: BindingState) -> tuple[NewEffect, ...]:
    """The work that must be queued, or done, while the binding is in this state."""
    if not state.open or state.state == Phase.RESERVED:
        return ()
    if state.state == Phase.COMMITTING:
        streams = (pod_stream(state), node_stream(state), *(it for leg in state.legs for it in leg_streams(leg)))
        return (binding_effect(binding, "pod", BIND_POD, {"streams": streams}),)
    if state.state == Phase.PREBINDING and is_unnominated(state):
        return (binding_effect(binding, "nomination", NOMINATE, {"streams": (pod_stream(state),)}, queue=PREBIND),)
    effects = []
    for index, leg in enumerate(state.legs):
        if leg.state == LegPhase.ASSUMED:
            effects.append(leg_effect(binding, index, ANNOTATE if leg.dynamic else PREBIND, leg))
        elif leg.state == LegPhase.RELEASING:
            effects.append(leg_effect(binding, index, RELEASE, leg))
    return tuple(effects)


def is_unnominated(state: BindingState) -> bool:
    """Whether no leg of a staged plan has been queued yet."""
    owned = [leg.state for leg in state.legs if leg.owner]
    return bool(owned) and all(phase == LegPhase.PLANNED for phase in owned)


def leg_streams(leg: LegState) -> tuple[str, ...]:
    return (f"claim/{leg.claim}",) if leg.volume is None else (f"claim/{leg.claim}", f"volume/{leg.volume}")


def planned_claim(leg: LegState, states: States) -> ObjectState | None:
    """The claim that the leg was planned for, not a later one of the same name."""
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or claim.manifest is None or uid(claim.manifest) != leg.claim_uid:
        return None
    return claim


def leg_effect(binding: str, index: int, kind: str, leg: LegState) -> NewEffect:
    return binding_effect(binding, str(index), kind, {"leg": index, "streams": leg_streams(leg)})


def binding_effect(
    binding: str, part: str, kind: str, data: Mapping[str, Any], *, queue: str | None = None
) -> NewEffect:
    """`streams` in the data: the objects that the act reads, so that they can be loaded beforehand."""
    return NewEffect(
        key=f"{binding}/{part}/{kind}",
        lane=f"{binding}/{part}",
        queue=queue or kind,
        kind=kind,
        data=data,
        binding=binding,
    )
