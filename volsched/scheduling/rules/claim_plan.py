"""How the unbound claims of a pod are served on one node: by existing volumes as far as they go, then by new ones.

The reference is greedy: smallest claim first, smallest volume that fits, no second thoughts. Where that leaves a
claim without a volume, profile `volsched` looks for the best assignment of all claims instead.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.claim_rejections import committed_elsewhere, overdrawn, unserved
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume, check_provisions
from volsched.scheduling.rules.joint_assignment import Option, best_assignment, volume_options
from volsched.scheduling.rules.matching import best_of, matching_volumes, supply_of
from volsched.scheduling.rules.node_storage import NodeStorage, Plan, slots_after
from volsched.scheduling.rules.pod_claims import PodClaims, selected_node
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.rejection import Rejection
from volsched.scheduling.rules.snapshot import Snapshot


class StaticBinding(NamedTuple):
    """An existing volume for a claim."""

    claim: Claim
    volume: Volume


# Not frozen, though nobody changes it: made for every node, in a third of the time that a frozen one takes.
@dataclass(slots=True, kw_only=True)
class ServedClaims:
    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[PlannedVolume, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    """Why not all claims can be served, the one that decides first; bindings found are kept, provisions not."""


def serve_claims(
    snapshot: Snapshot, claims: PodClaims, node: Node, *, profile: Profile, slots: Mapping[str, int]
) -> ServedClaims:
    """Serve the delayed claims. One that carries a selected node is committed: to provisioning, on that node."""
    place = NodeStorage(snapshot=snapshot, node=node, profile=profile, candidates=claims.candidates, slots=slots)
    alpha = profile.reads_alpha_annotations
    committed = [claim for claim in claims.delayed if selected_node(claim, alpha=alpha) is not None]
    for claim in committed:
        selected = selected_node(claim, alpha=alpha)
        if selected != node.name:
            return ServedClaims(rejections=(committed_elsewhere(claim, selected, node),))
    to_match = in_serving_order(claims.delayed, profile)
    plan = _greedy(place, to_match)
    served = _completed(place, claims.bound, committed, plan)
    # Where nobody found a volume while all were still there, no other order finds one.
    if profile.exact_matching and served.bindings and (served.rejections or len(served.bindings) < len(plan)):
        better = _exact(place, to_match, committed)
        served = served if better is None else _completed(place, claims.bound, committed, better)
    return served


def in_serving_order(claims: Sequence[Claim], profile: Profile) -> list[Claim]:
    """The claims that look for a volume, as they are served one after the other."""
    alpha = profile.reads_alpha_annotations
    waiting = [claim for claim in claims if selected_node(claim, alpha=alpha) is None]
    waiting.sort(key=lambda claim: claim.size.nano, reverse=profile.largest_claim_first)
    return waiting


def _completed(place: NodeStorage, bound: Sequence[Claim], committed: Sequence[Claim], plan: Plan) -> ServedClaims:
    """The plan with provisions for what it leaves without a volume, or why there is none."""
    bindings = _bindings(plan)
    unmatched = [claim for claim, volume in plan if volume is None]
    left = slots_after(place.slots, [binding.volume for binding in bindings])
    provisions = check_provisions(
        place.snapshot, place.node, [*committed, *unmatched], profile=place.profile, slots=left
    )
    if provisions.rejection is not None:
        rejections = unserved(place, provisions.rejection, plan, left) if place.profile.explains else ()
        return ServedClaims(bindings=bindings, rejections=rejections or (provisions.rejection,))
    driver = next((driver for driver, free in left.items() if free < 0), None) if left else None
    if driver is not None:
        using = [*bound, *(binding.claim for binding in bindings)]
        return ServedClaims(bindings=bindings, rejections=(overdrawn(place, driver, using),))
    return ServedClaims(bindings=bindings, provisions=provisions.decided)


def _bindings(plan: Plan) -> tuple[StaticBinding, ...]:
    return tuple([StaticBinding(claim, volume) for claim, volume in plan if volume is not None])


def _greedy(place: NodeStorage, claims: Sequence[Claim]) -> Plan:
    plan: Plan = []
    given: list[Volume] = []
    supplies = {name: supply_of(place.candidates[name]) for name in {claim.class_name for claim in claims}}
    for claim in claims:
        search = place.search(claim, taken=given, slots=slots_after(place.slots, given))
        found = best_of(search, supplies[claim.class_name])
        plan.append((claim, found))
        if found is not None:
            given.append(found)
    return plan


def _exact(place: NodeStorage, claims: Sequence[Claim], committed: Sequence[Claim]) -> Plan | None:
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
