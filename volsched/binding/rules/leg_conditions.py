"""Has the cluster completed the legs? The condition table of the wait loop, row by row.

It is asked whenever one of the objects changes, and once a second as a backstop. The first row that matches
decides; a row that waits hides the rows below it until the next time.
"""

from dataclasses import dataclass

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
from volsched.log.events.decision import States
from volsched.log.events.fold import BindingState, LegState, ObjectState
from volsched.log.events.object_states import (
    binding_stream,
    living,
    manifest_of,
    node_stream,
    origin_version,
    pod_stream,
)

DEADLINE_EXCEEDED = "binding volumes: context deadline exceeded"
PROVISIONING_FAILED = "provisioning failed"


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The leg is complete, with this volume."""

    volume: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It will never be, the way it was planned."""

    why: str


Verdict = Wait | Bound | Failed
WAIT = Wait()


def judge_pod(binding: BindingState, states: States) -> Failed | None:
    """Rows 1 and 2: node and pod are still there."""
    if manifest_of(states, node_stream(binding)) is None:
        return Failed(f'failed to get node "{binding.plan["node"]}": node "{binding.plan["node"]}" not found')
    pod = manifest_of(states, pod_stream(binding))
    if pod is None or uid(pod) != binding.plan["pod_uid"]:
        return Failed(f'pod does not exist any more: pod "{binding.plan["pod"]}" not found')
    return Failed(f'pod "{binding.plan["pod"]}" is being deleted') if is_being_deleted(pod) else None


def judge_leg(binding: BindingState, leg: LegState, states: States) -> Verdict:
    claim = living(states, f"claim/{leg.claim}")
    if claim is None or claim.manifest is None or (leg.claim_uid and uid(claim.manifest) != leg.claim_uid):
        check = "check provisioning pvc" if leg.dynamic else "check binding"
        return Failed(f'failed to {check}: persistentvolumeclaim "{leg.claim}" not found')
    disturbed = _disturbed(leg, claim.manifest)
    if disturbed is not None:
        return disturbed
    node = manifest_of(states, node_stream(binding)) or {}
    if not leg.owner:
        return _judge_joined(leg, claim.manifest, node, states)
    if leg.state == LegPhase.ASSUMED:
        return WAIT
    if leg.dynamic:
        return _judge_dynamic(binding, leg, claim, node, states)
    return _judge_static(leg, claim.manifest, node, states)


def _disturbed(leg: LegState, claim: Manifest) -> Failed | None:
    """Our additions to the table: a claim that is going away, or being undone, will not be completed."""
    if ROLLBACK in annotations(claim):
        return Failed(f'PVC "{leg.claim}" is undergoing rollback')
    if status(claim).get("phase") == LOST:
        return Failed(f'PVC "{leg.claim}" is lost')
    return Failed(f'PVC "{leg.claim}" is being deleted') if is_being_deleted(claim) else None


def _judge_static(leg: LegState, claim: Manifest, node: Manifest, states: States) -> Verdict:
    volume = living(states, f"volume/{leg.volume}")
    if volume is None or volume.manifest is None:
        return Failed(f'failed to check binding: persistentvolume "{leg.volume}" not found')
    if _is_behind(volume, leg):
        return WAIT
    if not volume_reaches(volume.manifest, node):
        return _out_of_reach(leg.volume, node)
    reference = claim_of(volume.manifest)
    if reference is None or not reference.get("uid"):
        return Failed(f'ClaimRef got reset for pv "{leg.volume}"')
    elsewhere = claim_is_bound(claim) and spec(claim)["volumeName"] != leg.volume
    if reference["uid"] != uid(claim) or elsewhere:
        return Failed(f'PVC "{leg.claim}" got bound to a different PV')
    return Bound(leg.volume or "") if claim_is_bound(claim) else WAIT


def _judge_dynamic(
    binding: BindingState, leg: LegState, claim: ObjectState, node: Manifest, states: States
) -> Verdict:
    held = claim.manifest or {}
    if _is_behind(claim, leg):
        return WAIT
    if not annotations(held):
        return Failed(f'selectedNode annotation reset for PVC "{_name(leg)}"')
    if annotations(held).get(SELECTED_NODE) != binding.plan["node"]:
        return Failed(f'{PROVISIONING_FAILED} for PVC "{_name(leg)}"')
    return _judge_volume_of(held, node, states)


def _judge_volume_of(claim: Manifest, node: Manifest, states: States) -> Verdict:
    """Rows 12 to 14: whatever volume the claim has must be within reach."""
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
        return Failed(f'PVC "{leg.claim}" is not bound any more')
    owner = states.get(binding_stream(leg.joins))
    if isinstance(owner, BindingState) and owner.state == Phase.ROLLED_BACK:
        return Failed(f'the binding {leg.joins}, which was to bind PVC "{leg.claim}", was rolled back')
    return WAIT


def _is_behind(state: ObjectState, leg: LegState) -> bool:
    """What we see is older than what we wrote: the watch of a foreign cluster lags."""
    seen = origin_version(state)
    return seen is not None and leg.written_rv is not None and int(seen) < int(leg.written_rv)


def _name(leg: LegState) -> str:
    """Without its namespace, as the reference has it."""
    return leg.claim.rpartition("/")[2]


def _out_of_reach(volume: str | None, node: Manifest) -> Failed:
    name = (node.get("metadata") or {}).get("name")
    return Failed(f'pv "{volume}" node affinity doesn\'t match node "{name}": no matching NodeSelectorTerms')
