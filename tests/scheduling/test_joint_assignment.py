"""The volsched profile against brute force: it finds a plan whenever there is one, and the best one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from hypothesis import given, settings

from tests.support.extent import extended, extent
from tests.support.random_clusters import Cluster, clusters
from volsched.kube.selectors import topology_allows
from volsched.kube.storage import NO_PROVISIONER, Claim, StorageCapacity, StorageClass, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.rules.attach_limits import attach_budget
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.matching import Search, find_matching_volume, matching_volumes
from volsched.scheduling.rules.pod_claims import classify_claims, selected_node
from volsched.scheduling.rules.profile import PARITY, VOLSCHED
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.volume_filter import find_pod_volumes

pytestmark = extended

Plan = tuple[Volume | None, ...]
GREEDY = replace(VOLSCHED, exact_matching=False)


def brute_force(cluster: Cluster, node: Node) -> Plan | None:
    """The best of all ways to serve the claims (in order of size), tried one by one."""
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    committed = [claim for claim in found.delayed if selected_node(claim, alpha=True) is not None]
    if any(selected_node(claim, alpha=True) != node.name for claim in committed):
        return None
    claims = in_order(found.delayed)
    options: list[list[Volume | None]] = []
    for claim in claims:
        matches = matching_volumes(Search(claim=claim, node=node), found.candidates[claim.class_name])
        may_provision: list[Volume | None] = [] if matches.pinned and matches.volumes else [None]
        options.append([*matches.volumes, *may_provision])
    slots = attach_budget(snapshot, cluster.pod, node)
    plans = [
        plan
        for plan in product(*options)
        if volumes_fit(
            plan, slots, [snapshot.classes[c.class_name] for c in provisioned(claims, plan) + committed]
        )
        and can_be_made(snapshot, node, provisioned(claims, plan) + committed)
    ]
    return min(plans, key=worth, default=None)


def in_order(claims: Sequence[Claim]) -> list[Claim]:
    return sorted(
        (claim for claim in claims if selected_node(claim, alpha=True) is None), key=lambda claim: claim.size
    )


def provisioned(claims: list[Claim], plan: Plan) -> list[Claim]:
    return [claim for claim, volume in zip(claims, plan, strict=True) if volume is None]


def volumes_fit(plan: Plan, slots: dict[str, int], made_by: list[StorageClass]) -> bool:
    """No volume twice, and no driver with more volumes, old and new, than it has slots."""
    used = [volume for volume in plan if volume is not None]
    drivers = Counter(at.driver for volume in used if (at := attach_id(volume)) is not None)
    drivers.update(storage_class.provisioner for storage_class in made_by)
    return len({volume.name for volume in used}) == len(used) and all(
        count <= slots.get(driver, count) for driver, count in drivers.items()
    )


def can_be_made(snapshot: Snapshot, node: Node, claims: list[Claim]) -> bool:
    """Every way to spread the claims over capacity objects, tried with code of its own."""
    choices: list[list[StorageCapacity | None]] = []
    for claim in claims:
        storage_class = snapshot.classes[claim.class_name]
        if storage_class.provisioner == NO_PROVISIONER:
            return False
        if not topology_allows(storage_class.allowed_topologies, node.labels):
            return False
        driver = snapshot.drivers.get(storage_class.provisioner)
        published = [
            held for held in snapshot.capacities.values() if held.storage_class_name == storage_class.name
        ]
        fitting = [held for held in published if held.limit is not None and held.limit >= claim.size]
        choices.append([*fitting] if driver is not None and driver.storage_capacity else [None])
    for spread in product(*choices):
        taken: Counter[str] = Counter()
        for claim, held in zip(claims, spread, strict=True):
            if held is not None:
                taken[held.key] += claim.size.value()
        if all(bytes_ <= total(snapshot, key) for key, bytes_ in taken.items()):
            return True
    return False


def total(snapshot: Snapshot, key: str) -> int:
    held = snapshot.capacities[key]
    published = [
        quantity.value() for quantity in (held.capacity, held.maximum_volume_size) if quantity is not None
    ]
    return max(published) - snapshot.reserved.get(key, 0)


def worth(plan: Plan) -> tuple[int, int, list[str]]:
    return (
        sum(volume is None for volume in plan),
        sum(volume.size.nano for volume in plan if volume is not None),
        [volume.name if volume is not None else "" for volume in plan],
    )


def decided(cluster: Cluster, node: Node) -> Iterator[tuple[str, Plan | None]]:
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    order = [claim.key for claim in in_order(found.delayed)]
    for profile in (GREEDY, VOLSCHED):
        answer = find_pod_volumes(snapshot, cluster.pod, found, node, profile=profile)
        given_to = {binding.claim.key: binding.volume for binding in answer.bindings}
        plan = tuple(given_to.get(key) for key in order)
        yield profile.name, plan if answer.fits else None


@given(clusters())
@settings(max_examples=extent(150, 600), deadline=None)
def test_the_decision_is_greedys_when_that_serves_all_statically_and_else_the_best_of_all(
    cluster: Cluster,
) -> None:
    for node in cluster.snapshot.nodes.values():
        (_, greedy), (_, exact) = decided(cluster, node)
        if greedy is not None and None not in greedy:
            assert exact == greedy
        else:
            assert exact == brute_force(cluster, node)


@given(clusters(max_claims=1))
@settings(max_examples=extent(50, 200), deadline=None)
def test_one_claim_is_decided_alike_in_both_profiles(cluster: Cluster) -> None:
    """Apart from attach limits and reservations, which the reference does not know here."""
    snapshot = replace(cluster.snapshot, reserved={})
    found = classify_claims(snapshot, cluster.pod, once=True)
    unlimited = replace(VOLSCHED, attach_limits=False)
    for node in snapshot.nodes.values():
        ours = find_pod_volumes(snapshot, cluster.pod, found, node, profile=unlimited)
        theirs = find_pod_volumes(snapshot, cluster.pod, found, node, profile=PARITY)
        assert (ours.reasons, ours.bindings, ours.provisions) == (
            theirs.reasons,
            theirs.bindings,
            theirs.provisions,
        )


@given(clusters(couplings=False))
@settings(max_examples=extent(50, 200), deadline=None)
def test_profiles_agree_where_greedy_serves_every_claim_from_volumes(cluster: Cluster) -> None:
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    for node in snapshot.nodes.values():
        theirs = find_pod_volumes(snapshot, cluster.pod, found, node, profile=PARITY)
        if theirs.fits and not theirs.provisions:
            assert find_pod_volumes(snapshot, cluster.pod, found, node, profile=VOLSCHED) == theirs


@given(clusters())
@settings(max_examples=extent(50, 200), deadline=None)
def test_the_volume_found_first_is_the_best_of_all_that_match(cluster: Cluster) -> None:
    """A search looks at the smallest volumes first and stops; which one it finds must not depend on that."""
    snapshot = cluster.snapshot
    volumes = sorted(snapshot.stored_volumes.values(), key=lambda volume: volume.name)
    for claim, node in product(snapshot.stored_claims.values(), snapshot.nodes.values()):
        search = Search(claim=claim, node=node, taken={volume.name for volume in volumes[::3]})
        assert find_matching_volume(search, volumes) == matching_volumes(search, volumes).best
