"""Is all that a reservation holds still what it was?

Nothing is written that would keep others from changing it. So any change of an object that is to be written ends
the reservation: its write would be refused, and whoever holds it had better know before it is confirmed.
"""

from volsched.binding.rules.leg_conditions import Failed, judge_leg, judge_pod
from volsched.binding.rules.phases import LegPhase
from volsched.kube.manifest import claim_is_bound, spec
from volsched.log.events.decision import States
from volsched.log.events.fold import BindingState, LegState
from volsched.log.events.object_states import living, manifest_of, pod_stream, version

LEASE_EXPIRED = "the reservation expired: it was neither confirmed nor renewed in time"
RESERVATION_LOST = "the reservation was lost"


def judge_reserved(binding: BindingState, states: States) -> Failed | None:
    lost = judge_pod(binding, states)
    if lost is not None:
        return lost
    runs_on = spec(manifest_of(states, pod_stream(binding)) or {}).get("nodeName")
    if runs_on and runs_on != binding.plan["node"]:
        return Failed(f'pod "{binding.plan["pod"]}" was bound to node "{runs_on}" meanwhile')
    verdicts = (judge_leg(binding, leg, states) for leg in binding.legs)
    failed = next((it for it in verdicts if isinstance(it, Failed)), None)
    if failed is not None:
        return failed
    assumed = (leg for leg in binding.legs if leg.state == LegPhase.ASSUMED)
    return next(filter(None, (_changed(leg, states) for leg in assumed)), None)


def _changed(leg: LegState, states: States) -> Failed | None:
    if claim_is_bound(manifest_of(states, f"claim/{leg.claim}") or {}):
        return Failed(f'PVC "{leg.claim}" was bound meanwhile')
    named = f'PVC "{leg.claim}"' if leg.dynamic else f'pv "{leg.volume}"'
    held = living(states, f"claim/{leg.claim}" if leg.dynamic else f"volume/{leg.volume}")
    if held is None:
        return Failed(f"{named} not found")
    return (
        Failed(f"{named} was changed by somebody else since it was reserved") if version(held) != leg.rv else None
    )
