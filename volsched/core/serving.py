"""How the unbound claims of a pod are served on one node: by existing volumes as far as they go, then by new ones.

The reference is greedy: smallest claim first, smallest volume that fits, no second thoughts. Where that leaves a
claim without a volume, profile `volsched` looks for the best assignment of all claims instead.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from volsched.core.assignment import Option, best_assignment, volume_options
from volsched.core.attach import attach_id
from volsched.core.claims import PodClaims, selected_node
from volsched.core.matching import Search, find_matching_volume, matching_volumes, nearest_misses
from volsched.core.profile import Profile
from volsched.core.provisioning import Provision, check_provisions
from volsched.core.rejections import Failure, Rejection, Rule
from volsched.core.snapshot import Snapshot
from volsched.core.status import NO_VOLUME_TO_BIND, TOO_MANY_VOLUMES
from volsched.model.storage import Claim, Volume
from volsched.model.workloads import Node


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """An existing volume for a claim."""

    claim: Claim
    volume: Volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[Provision, ...] = ()
    rejection: Rejection | None = None
    """Why not all claims can be served; the bindings found up to then are kept, provisions are not."""


Plan = list[tuple[Claim, Volume | None]]
"""In serving order, the volume for each claim; None = to be provisioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The node at hand, and all that serving a claim there depends on."""

    snapshot: Snapshot
    node: Node
    profile: Profile
    candidates: Mapping[str, Sequence[Volume]]
    slots: Mapping[str, int]
    """Attach slots left per driver; a driver that is not listed has no limit."""

    def search(self, claim: Claim, *, taken: Collection[str] = (), full: Collection[str] = ()) -> Search:
        return Search(
            claim=claim,
            node=self.node,
            taken=taken,
            full_drivers=full,
            enforce_match_fields=self.profile.enforce_match_fields,
        )

    def provisioner_of(self, claim: Claim) -> str:
        return self.snapshot.classes[claim.class_name].provisioner


def serve_claims(
    snapshot: Snapshot, claims: PodClaims, node: Node, *, profile: Profile, slots: Mapping[str, int]
) -> Served:
    """Serve the delayed claims. One that carries a selected node is committed: to provisioning, on that node."""
    place = _Place(snapshot=snapshot, node=node, profile=profile, candidates=claims.candidates, slots=slots)
    committed = [claim for claim in claims.delayed if selected_node(claim) is not None]
    for claim in committed:
        if selected_node(claim) != node.name:
            return Served(rejection=_committed_elsewhere(claim, node))
    to_match = sorted(
        (claim for claim in claims.delayed if selected_node(claim) is None),
        key=lambda claim: claim.size,
        reverse=profile.largest_claim_first,
    )
    plan = _greedy(place, to_match)
    if profile.exact_matching and any(volume is None for _, volume in plan):
        plan = _exact(place, to_match, committed) or plan
    bindings = _bindings(plan)
    unmatched = [claim for claim, volume in plan if volume is None]
    left = _slots_after(slots, bindings)
    provisions = check_provisions(snapshot, node, [*committed, *unmatched], profile=profile, slots=left)
    if provisions.rejection is not None:
        return Served(bindings=bindings, rejection=_with_misses(provisions.rejection, place, plan))
    overdrawn = next((driver for driver, free in left.items() if free < 0), None)
    if overdrawn is not None:
        return Served(bindings=bindings, rejection=_overdrawn(overdrawn, bindings))
    return Served(bindings=bindings, provisions=provisions.decided)


def _bindings(plan: Plan) -> tuple[StaticBinding, ...]:
    return tuple(StaticBinding(claim, volume) for claim, volume in plan if volume is not None)


def _greedy(place: _Place, claims: Sequence[Claim]) -> Plan:
    plan: Plan = []
    for claim in claims:
        bindings = _bindings(plan)
        full = {driver for driver, free in _slots_after(place.slots, bindings).items() if free <= 0}
        taken = {binding.volume.name for binding in bindings}
        search = place.search(claim, taken=taken, full=full)
        plan.append((claim, find_matching_volume(search, place.candidates[claim.class_name])))
    return plan


def _exact(place: _Place, claims: Sequence[Claim], committed: Sequence[Claim]) -> Plan | None:
    """The best plan that serves every claim, or None if there is none."""
    slots = dict(place.slots)
    for claim in committed:
        provisioner = place.provisioner_of(claim)
        if provisioner in slots:
            slots[provisioner] -= 1

    def can_provision(chosen: Collection[int]) -> bool:
        together = [*committed, *(claims[index] for index in sorted(chosen))]
        provisions = check_provisions(place.snapshot, place.node, together, profile=place.profile, slots={})
        return provisions.rejection is None

    options: list[list[Option]] = []
    for index, claim in enumerate(claims):
        matches = matching_volumes(place.search(claim), place.candidates[claim.class_name])
        mine = list(volume_options(matches.volumes))
        if not (matches.pinned and mine) and can_provision([index]):
            mine.append(Option(None, place.provisioner_of(claim)))
        options.append(mine)
    chosen = best_assignment(options, slots=slots, can_provision=can_provision)
    return (
        None if chosen is None else [(claim, option.volume) for claim, option in zip(claims, chosen, strict=True)]
    )


def _slots_after(slots: Mapping[str, int], bindings: Sequence[StaticBinding]) -> Mapping[str, int]:
    if not slots:
        return slots
    left = dict(slots)
    for binding in bindings:
        attached_as = attach_id(binding.volume)
        if attached_as is not None and attached_as.driver in left:
            left[attached_as.driver] -= 1
    return left


def _committed_elsewhere(claim: Claim, node: Node) -> Rejection:
    failure = Failure(Rule.SELECTED_NODE, f"node {selected_node(claim) or 'none'}", f"node {node.name}")
    return Rejection(reason=NO_VOLUME_TO_BIND, claim=claim.key, failures=(failure,))


def _with_misses(rejection: Rejection, place: _Place, plan: Plan) -> Rejection:
    """Name the volumes that came nearest to serving the claim that nothing could be provisioned for."""
    if not place.profile.explains:
        return rejection
    claim = next((claim for claim, volume in plan if claim.key == rejection.claim and volume is None), None)
    if claim is None:
        return rejection
    taken = {volume.name for _, volume in plan if volume is not None}
    misses = nearest_misses(place.search(claim, taken=taken), place.candidates[claim.class_name])
    return replace(rejection, misses=misses)


def _overdrawn(driver: str, bindings: Sequence[StaticBinding]) -> Rejection:
    using = (
        binding.claim.key for binding in bindings if (at := attach_id(binding.volume)) and at.driver == driver
    )
    failure = Failure(Rule.ATTACH_LIMIT, f"a free attach slot of {driver}", "none left")
    return Rejection(reason=TOO_MANY_VOLUMES, claim=next(using, ""), failures=(failure,))
