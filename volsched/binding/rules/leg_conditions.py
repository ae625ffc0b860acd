"""Checks whether the cluster has completed the legs, and whether a reservation's objects are unchanged."""

from dataclasses import dataclass

from volsched.binding.rules import reasons
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.kube.manifest import (
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    spec,
    status,
    uid,
    volume_reaches,
)
from volsched.kube.meta import ROLLBACK, SELECTED_NODE
from volsched.kube.storage import LOST
from volsched.log.events.fold import (
    BindingState,
    LegState,
    ObjectState,
    States,
    binding_stream,
    living,
    manifest_of,
    node_stream,
    origin_version,
    pod_stream,
    version,
)

# Checked whenever one of the objects changes, and once a second as a backstop. The first row that matches
# decides; a row that waits hides the rows below it until the next check.


@dataclass(frozen=True, slots=True)
class Wait:
    """The leg is not complete yet."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The leg is complete, with this volume."""

    volume: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The leg can never complete as planned."""

    why: str


Verdict = Wait | Bound | Failed
WAIT = Wait()


def judge_pod(binding: BindingState, states: States) -> Failed | None:
    """Rows 1 and 2: node and pod must still exist."""
    if manifest_of(states, node_stream(binding)) is None:
        return Failed(reasons.node_not_found(binding.plan["node"]))
    pod = manifest_of(states, pod_stream(binding))
    if pod is None or uid(pod) != binding.plan["pod_uid"]:
        return Failed(reasons.pod_not_found(binding.plan["pod"]))
    return Failed(reasons.pod_being_deleted(binding.plan["pod"])) if is_being_deleted(pod) else None


def judge_leg(binding: BindingState, leg: LegState, states: States) -> Verdict:
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or claim.manifest is None or (leg.claim_uid and uid(claim.manifest) != leg.claim_uid):
        check = "check provisioning pvc" if leg.dynamic else "check binding"
        return Failed(reasons.claim_not_found(leg.claim, check))
    disturbed = _disturbed(leg, claim.manifest)
    if disturbed is not None:
        return disturbed
    node = manifest_of(states, node_stream(binding)) or {}
    if not leg.owner:
        return _judge_joined(leg, claim.manifest, node, states)
    if leg.state in (LegPhase.PLANNED, LegPhase.ASSUMED):
        return WAIT
    if leg.dynamic:
        return _judge_dynamic(binding, leg, claim, node, states)
    return _judge_static(leg, claim.manifest, node, states)


def _disturbed(leg: LegState, claim: Manifest) -> Failed | None:
    """Our addition to the table: a claim that is being deleted or rolled back will not be completed."""
    if ROLLBACK in annotations(claim):
        return Failed(reasons.claim_in_rollback(leg.claim))
    if status(claim).get("phase") == LOST:
        return Failed(reasons.claim_lost(leg.claim))
    return Failed(reasons.claim_being_deleted(leg.claim)) if is_being_deleted(claim) else None


def _judge_static(leg: LegState, claim: Manifest, node: Manifest, states: States) -> Verdict:
    volume = living(states, f"volume/{leg.volume}")
    if volume is None or volume.manifest is None:
        return Failed(reasons.volume_not_found(leg.volume))
    if _is_behind(volume, leg):
        return WAIT
    if not volume_reaches(volume.manifest, node):
        return _out_of_reach(leg.volume, node)
    reference = claim_of(volume.manifest)
    if reference is None or not reference.get("uid"):
        return Failed(reasons.volume_reference_reset(leg.volume))
    elsewhere = claim_is_bound(claim) and spec(claim)["volumeName"] != leg.volume
    if reference["uid"] != uid(claim) or elsewhere:
        return Failed(reasons.claim_bound_elsewhere(leg.claim))
    return Bound(leg.volume or "") if claim_is_bound(claim) else WAIT


def _judge_dynamic(
    binding: BindingState, leg: LegState, claim: ObjectState, node: Manifest, states: States
) -> Verdict:
    manifest = claim.manifest or {}
    if _is_behind(claim, leg):
        return WAIT
    if not annotations(manifest):
        return Failed(reasons.selected_node_reset(_name(leg)))
    if annotations(manifest).get(SELECTED_NODE) != binding.plan["node"]:
        return Failed(reasons.provisioning_failed(_name(leg)))
    return _judge_volume_of(manifest, node, states)


def _judge_volume_of(claim: Manifest, node: Manifest, states: States) -> Verdict:
    """Rows 12 to 14: the node must reach the claim's volume."""
    name = spec(claim).get("volumeName")
    if not name:
        return WAIT
    volume = manifest_of(states, f"volume/{name}")
    if volume is None:
        return WAIT
    if not volume_reaches(volume, node):
        return _out_of_reach(name, node)
    return Bound(name) if claim_is_bound(claim) else WAIT


def _judge_joined(leg: LegState, claim: Manifest, node: Manifest, states: States) -> Verdict:
    verdict = _judge_volume_of(claim, node, states)
    if verdict is not WAIT:
        return verdict
    if leg.joins is None:
        return Failed(reasons.claim_not_bound_any_more(leg.claim))
    owner = states.get(binding_stream(leg.joins))
    if isinstance(owner, BindingState) and owner.state == Phase.ROLLED_BACK:
        return Failed(reasons.joined_binding_rolled_back(leg.joins, leg.claim))
    return WAIT


def _is_behind(state: ObjectState, leg: LegState) -> bool:
    """Whether our view is older than our write: the watch of a foreign cluster lags."""
    seen = origin_version(state)
    return seen is not None and leg.written_rv is not None and int(seen) < int(leg.written_rv)


def _name(leg: LegState) -> str:
    """The claim's name without its namespace, as in the reference."""
    return leg.claim.rpartition("/")[2]


def _out_of_reach(volume: str | None, node: Manifest) -> Failed:
    name = (node.get("metadata") or {}).get("name")
    return Failed(reasons.volume_out_of_reach(volume, name))


# Whether the objects of a reservation are unchanged.
#
# A reservation writes nothing that would stop others from changing them. So any change of an object to be
# written ends the reservation: its write would be refused, and its owner must know before confirming.


def judge_reserved(binding: BindingState, states: States) -> Failed | None:
    lost = judge_pod(binding, states)
    if lost is not None:
        return lost
    runs_on = spec(manifest_of(states, pod_stream(binding)) or {}).get("nodeName")
    if runs_on and runs_on != binding.plan["node"]:
        return Failed(reasons.pod_bound_meanwhile(binding.plan["pod"], runs_on))
    verdicts = (judge_leg(binding, leg, states) for leg in binding.legs)
    failed = next((it for it in verdicts if isinstance(it, Failed)), None)
    if failed is not None:
        return failed
    assumed = (leg for leg in binding.legs if leg.state == LegPhase.ASSUMED)
    return next(filter(None, (_changed(leg, states) for leg in assumed)), None)


def _changed(leg: LegState, states: States) -> Failed | None:
    if claim_is_bound(manifest_of(states, f"claim/{leg.claim}") or {}):
        return Failed(reasons.claim_bound_meanwhile(leg.claim))
    named = f'PVC "{leg.claim}"' if leg.dynamic else f'pv "{leg.volume}"'
    written = living(states, f"claim/{leg.claim}" if leg.dynamic else f"volume/{leg.volume}")
    if written is None:
        return Failed(f"{named} {reasons.NOT_FOUND}")
    return Failed(reasons.changed_since_reserved(named)) if version(written) != leg.rv else None
