"""Which existing volumes may serve a claim: one list of rules, used by the scheduler and by the PV controller.

With a node it is the scheduler's search; without one it is the controller's, which leaves unclaimed volumes of
delayed classes to the scheduler. A volume that names the claim already precedes every free one, and hides them all
if it cannot reach the node.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from volsched.kube.display_text import affinity_text, claimed_by, label_selector_text, labels_text, or_none
from volsched.kube.manifest import is_bound_to, reaches
from volsched.kube.meta import BIND_COMPLETED
from volsched.kube.selectors import label_selector_matches, label_selector_problem
from volsched.kube.storage import ACCESS_MODES, AVAILABLE, Claim, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.reasons import selector_not_readable
from volsched.scheduling.rules.status import AttemptError, Failure, Miss, Rule

NEAREST_MISSES = 3
NOT_LOOKED_AT = ("", "Pending")
"""Phases of a volume that no PV controller has synced yet."""


# Not frozen, though never modified: created for every claim, in a third of the time of a frozen one.
@dataclass(slots=True, kw_only=True)
class Search:
    """One search for a claim: where, and what is excluded."""

    claim: Claim
    node: Node | None
    delay_binding: bool = True
    taken: Collection[str] = ()
    """Volumes given to earlier claims of the same pod."""
    full_drivers: Collection[str] = ()
    """Drivers with no attach slot left on the node."""
    enforce_match_fields: bool = False
    unseen: bool = False
    """Accept volumes that no controller has synced yet: it will make them Available."""


@dataclass(frozen=True, slots=True)
class Matches:
    volumes: tuple[Volume, ...]
    pinned: bool = False
    """A volume names the claim already: no other may be used, even if that leaves none for this node."""

    @property
    def best(self) -> Volume | None:
        """The smallest volume that fits; ties go to the smallest name."""
        return min(self.volumes, key=lambda volume: (volume.size.nano, volume.name), default=None)


NO_MATCHES = Matches(())


class Supply(NamedTuple):
    """Volumes prepared for several searches, so that sizes are compared before the rules, which cost more."""

    claimed: tuple[Volume, ...]
    """Volumes with a claimRef, in name order."""
    free: tuple[tuple[int, str, Volume], ...]
    """(size, name, volume) of the others, in this order."""


def supply_of(volumes: Iterable[Volume]) -> Supply:
    claimed: list[Volume] = []
    free: list[tuple[int, str, Volume]] = []
    for volume in volumes:
        if volume.claim_ref is not None:
            claimed.append(volume)
        else:
            free.append((volume.size.nano, volume.meta.name, volume))
    free.sort()
    return Supply(tuple(claimed), tuple(free))


def find_matching_volume(search: Search, volumes: Iterable[Volume]) -> Volume | None:
    return best_of(search, supply_of(volumes))


def best_of(search: Search, supply: Supply) -> Volume | None:
    """The volume that names the claim, or the smallest free one that fits; ties go to the smallest name."""
    check_selector(search.claim)
    pinned = matching_volumes(search, supply.claimed) if supply.claimed else NO_MATCHES
    if pinned.pinned:
        return pinned.best
    large_enough = bisect_left(supply.free, (search.claim.size.nano,))
    for _, _, volume in islice(supply.free, large_enough, None):
        if next(failed_rules(search, volume), None) is None:
            return volume
    return None


def matching_volumes(search: Search, volumes: Iterable[Volume]) -> Matches:
    """All volumes that fit. `volumes` come in name order, which decides between several pre-bound ones."""
    check_selector(search.claim)
    matches: list[Volume] = []
    for volume in volumes:
        failed = next(failed_rules(search, volume), None)
        if volume.claim_ref is not None and is_bound_to(volume, search.claim):
            if failed is None:
                return Matches((volume,), pinned=True)
            if failed is Rule.NODE_AFFINITY:
                return Matches((), pinned=True)
        elif failed is None:
            matches.append(volume)
    return Matches(tuple(matches))


def find_for_controller(claim: Claim, volumes: Iterable[Volume], *, delay_binding: bool) -> Volume | None:
    """The PV controller's search: groups of equal access modes, fewest modes first; the first group with a match
    decides. So a large volume with exactly the right modes beats a perfect size with more modes."""
    groups: dict[tuple[str, ...], list[Volume]] = {}
    for volume in sorted(volumes, key=lambda volume: volume.name):
        groups.setdefault(tuple(mode for mode in ACCESS_MODES if mode in volume.access_modes), []).append(volume)
    search = Search(claim=claim, node=None, delay_binding=delay_binding)
    for modes in sorted(groups, key=lambda modes: (len(modes), ",".join(modes))):
        if set(claim.access_modes) <= set(modes):
            found = find_matching_volume(search, groups[modes])
            if found is not None:
                return found
    return None


def check_selector(claim: Claim) -> None:
    problem = None if claim.selector is None else label_selector_problem(claim.selector)
    if problem is not None:
        raise AttemptError(selector_not_readable(claim.key, problem))


def failed_rules(search: Search, volume: Volume) -> Iterator[Rule]:
    """Every rule the volume fails, in the order of the reference; the first one is why it is skipped."""
    claim, node, meta = search.claim, search.node, volume.meta
    prebound = volume.claim_ref is not None and is_bound_to(volume, claim)
    if meta.name in search.taken:
        yield Rule.NOT_TAKEN
    if volume.claim_ref is not None and not prebound:
        yield Rule.UNCLAIMED
    if volume.size.nano < claim.size.nano:
        yield Rule.CAPACITY
    if volume.mode != claim.mode:
        yield Rule.VOLUME_MODE
    if (volume.attributes_class or "") != (claim.attributes_class or ""):
        yield Rule.ATTRIBUTES_CLASS
    if meta.being_deleted:
        yield Rule.NOT_DELETED
    if not prebound:
        if node is None and search.delay_binding:
            yield Rule.LEFT_TO_SCHEDULER
        if volume.phase != AVAILABLE and not (search.unseen and is_unseen(volume)):
            yield Rule.PHASE
        if claim.selector is not None and not label_selector_matches(claim.selector, meta.labels):
            yield Rule.SELECTOR
        if volume.class_name != claim.class_name:
            yield Rule.CLASS
    if node is None:
        return
    if not reaches(volume, node, enforce_match_fields=search.enforce_match_fields):
        yield Rule.NODE_AFFINITY
    if prebound:
        return
    if search.full_drivers:
        attached_as = attach_id(volume)
        if attached_as is not None and attached_as.driver in search.full_drivers:
            yield Rule.ATTACH_LIMIT
    if not set(claim.access_modes).issubset(volume.access_modes):
        yield Rule.ACCESS_MODES


def is_unseen(volume: Volume) -> bool:
    """Whether no PV controller has synced the volume yet. As it names no claim, it will become Available."""
    return volume.claim_ref is None and volume.phase in NOT_LOOKED_AT


def is_named_by(volume: Volume, claim: Claim) -> bool:
    """Whether the claim names the volume, and only waits for the PV controller to bind it. A named volume is not
    searched for, so neither selector nor phase is checked."""
    settled = volume.claim_ref is not None or BIND_COMPLETED in claim.meta.annotations
    if settled or claim.volume_name != volume.name:
        return False
    failed = set(failed_rules(Search(claim=claim, node=None, delay_binding=False), volume))
    return failed <= {Rule.PHASE, Rule.SELECTOR} and set(claim.access_modes) <= set(volume.access_modes)


def is_given_to(volume: Volume, claim: Claim) -> bool:
    """Whether the volume was given to exactly this claim, whose own update is in flight."""
    ref = volume.claim_ref
    if ref is None or ref.uid != claim.meta.uid or not is_bound_to(volume, claim):
        return False
    return next(failed_rules(Search(claim=claim, node=None), volume), None) is None


def nearest_misses(search: Search, volumes: Iterable[Volume]) -> tuple[Miss, ...]:
    """The volumes that failed the fewest rules, closest in size first."""
    misses: list[tuple[tuple[int, int, str], Volume, tuple[Rule, ...]]] = []
    for volume in volumes:
        rules = tuple(failed_rules(search, volume))
        if rules:
            gap = abs(volume.size.nano - search.claim.size.nano)
            misses.append(((len(rules), gap, volume.name), volume, rules))
    misses.sort(key=lambda miss: miss[0])
    return tuple(
        Miss(volume.name, tuple(describe(rule, search, volume) for rule in rules))
        for _, volume, rules in misses[:NEAREST_MISSES]
    )


def describe(rule: Rule, search: Search, volume: Volume) -> Failure:
    """The value that the rule wanted of the volume and the one it found, for users."""
    claim = search.claim
    match rule:
        case Rule.NOT_TAKEN:
            wanted, got = "a volume not given to another claim of the pod", "given to another claim of the pod"
        case Rule.UNCLAIMED:
            wanted, got = f"unclaimed, or claimed by {claim.key}", f"claimed by {claimed_by(volume)}"
        case Rule.CAPACITY:
            wanted, got = f"at least {claim.size}", str(volume.size)
        case Rule.VOLUME_MODE:
            wanted, got = claim.mode, volume.mode
        case Rule.ATTRIBUTES_CLASS:
            wanted, got = or_none(claim.attributes_class), or_none(volume.attributes_class)
        case Rule.NOT_DELETED:
            wanted, got = "a volume that stays", "being deleted"
        case Rule.LEFT_TO_SCHEDULER:
            wanted, got = "a volume that names the claim", "left to the scheduler until a pod uses the claim"
        case Rule.PHASE:
            wanted, got = AVAILABLE, volume.phase or "no phase"
        case Rule.SELECTOR:
            wanted, got = label_selector_text(claim.selector), labels_text(volume.meta.labels)
        case Rule.CLASS:
            wanted, got = f"class {or_none(claim.class_name)}", f"class {or_none(volume.class_name)}"
        case Rule.NODE_AFFINITY:
            node = search.node.name if search.node else "any node"
            wanted, got = f"reachable from {node}", affinity_text(volume)
        case Rule.ATTACH_LIMIT:
            wanted, got = "a free attach slot of its driver", "none left"
        case Rule.ACCESS_MODES:
            wanted, got = "+".join(claim.access_modes), "+".join(volume.access_modes) or "none"
        case _:
            raise ValueError(f"{rule} is not a rule about volumes")
    return Failure(rule, wanted, got)
