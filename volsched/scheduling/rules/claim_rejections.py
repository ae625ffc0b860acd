"""Why claims could not be served on a node, in terms that a person can act on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from volsched.kube.storage import Claim
from volsched.kube.workloads import Node
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.dynamic_volumes import check_provisions
from volsched.scheduling.rules.matching import matching_volumes, nearest_misses
from volsched.scheduling.rules.node_storage import NodeStorage, Plan
from volsched.scheduling.rules.rejection import Failure, Rejection, Rule
from volsched.scheduling.rules.status import NO_VOLUME_TO_BIND, TOO_MANY_VOLUMES


def committed_elsewhere(claim: Claim, selected: str | None, node: Node) -> Rejection:
    failure = Failure(Rule.SELECTED_NODE, f"node {selected or 'none'}", f"node {node.name}")
    return Rejection(reason=NO_VOLUME_TO_BIND, claim=claim.key, failures=(failure,))


def unserved(place: NodeStorage, first: Rejection, plan: Plan, slots: Mapping[str, int]) -> tuple[Rejection, ...]:
    """Every claim that has neither a volume nor a way to get one made, the one that decided first.

    `slots`: what is left of the attach slots after the volumes of the plan.
    """
    rejections = [_with_misses(place, first, plan, slots)]
    for claim in (claim for claim, volume in plan if volume is None and claim.key != first.claim):
        alone = check_provisions(place.snapshot, place.node, [claim], profile=place.profile, slots=slots)
        if alone.rejection is not None:
            rejections.append(_with_misses(place, alone.rejection, plan, slots))
    return tuple(rejections)


def _with_misses(place: NodeStorage, rejection: Rejection, plan: Plan, slots: Mapping[str, int]) -> Rejection:
    """Name the volumes, of whatever class, that came nearest; a claim that one of them names can use no other."""
    claim = next((claim for claim, volume in plan if claim.key == rejection.claim and volume is None), None)
    if claim is None:
        return rejection
    snapshot = place.snapshot
    volumes = [volume for name in sorted(snapshot.stored_volumes) if (volume := snapshot.volume(name)) is not None]
    search = place.search(claim, taken=[volume for _, volume in plan if volume is not None], slots=slots)
    failures = rejection.failures
    if matching_volumes(search, place.candidates[claim.class_name]).pinned:
        pinned = Failure(Rule.PINNED, "the volume that names the claim", "it cannot be reached from this node")
        failures = (pinned, *failures)
    return replace(rejection, failures=failures, misses=nearest_misses(search, volumes))


def overdrawn(place: NodeStorage, driver: str, using: Sequence[Claim]) -> Rejection:
    """More volumes of the driver than the node can attach; `using`: claims with a volume, bound ones first."""
    volumes = ((claim.key, place.snapshot.volume(claim.volume_name)) for claim in using)
    mine = [key for key, volume in volumes if volume and (at := attach_id(volume)) and at.driver == driver]
    left = place.slots[driver]
    failure = Failure(Rule.ATTACH_LIMIT, f"attach slots of {driver} for all its volumes", f"{max(left, 0)} left")
    return Rejection(reason=TOO_MANY_VOLUMES, claim=(mine or [using[0].key])[0], failures=(failure,))
