"""The volsched profile against brute force: it finds a plan whenever there is one, and the best one."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.clusters import Cluster, clusters
from volsched.core.assignment import cheapest_columns
from volsched.core.attach import attach_budget, attach_id
from volsched.core.claims import classify_claims
from volsched.core.filtering import find_pod_volumes
from volsched.core.matching import Search, matching_volumes
from volsched.core.profile import PARITY, VOLSCHED
from volsched.core.provisioning import check_provisions
from volsched.core.snapshot import Snapshot
from volsched.model.storage import Claim, Volume
from volsched.model.workloads import Node

Plan = tuple[Volume | None, ...]
GREEDY = replace(VOLSCHED, exact_matching=False)


def brute_force(cluster: Cluster, node: Node) -> Plan | None:
    """The best of all ways to serve the claims (in order of size), tried one by one."""
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    claims = sorted(found.delayed, key=lambda claim: claim.size)
    options: list[list[Volume | None]] = []
    for claim in claims:
        matches = matching_volumes(Search(claim=claim, node=node), found.candidates[claim.class_name])
        may_provision: list[Volume | None] = [] if matches.pinned and matches.volumes else [None]
        options.append([*matches.volumes, *may_provision])
    slots = attach_budget(snapshot, cluster.pod, node)
    plans = [plan for plan in product(*options) if feasible(snapshot, node, claims, plan, slots)]
    return min(plans, key=worth, default=None)


def feasible(snapshot: Snapshot, node: Node, claims: list[Claim], plan: Plan, slots: dict[str, int]) -> bool:
    used = [volume for volume in plan if volume is not None]
    if len({volume.name for volume in used}) < len(used):
        return False
    left = dict(slots)
    for volume in used:
        attached_as = attach_id(volume)
        if attached_as is not None and attached_as.driver in left:
            left[attached_as.driver] -= 1
    provisioned = [claim for claim, volume in zip(claims, plan, strict=True) if volume is None]
    provisions = check_provisions(snapshot, node, provisioned, profile=VOLSCHED, slots=left)
    return provisions.rejection is None and all(free >= 0 for free in left.values())


def worth(plan: Plan) -> tuple[int, int, list[str]]:
    return (
        sum(volume is None for volume in plan),
        sum(volume.size.nano for volume in plan if volume is not None),
        [volume.name if volume is not None else "" for volume in plan],
    )


def decided(cluster: Cluster, node: Node) -> Iterator[tuple[str, Plan | None]]:
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    order = [claim.key for claim in sorted(found.delayed, key=lambda claim: claim.size)]
    for profile in (GREEDY, VOLSCHED):
        answer = find_pod_volumes(snapshot, cluster.pod, found, node, profile=profile)
        given_to = {binding.claim.key: binding.volume for binding in answer.bindings}
        plan = tuple(given_to.get(key) for key in order)
        yield profile.name, plan if answer.fits else None


@given(clusters())
@settings(max_examples=400, deadline=None)
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
@settings(max_examples=200, deadline=None)
def test_one_claim_is_decided_alike_in_both_profiles(cluster: Cluster) -> None:
    """Apart from attach limits, which the reference leaves to another filter."""
    snapshot = cluster.snapshot
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
@settings(max_examples=200, deadline=None)
def test_profiles_agree_where_greedy_serves_every_claim_from_volumes(cluster: Cluster) -> None:
    snapshot = cluster.snapshot
    found = classify_claims(snapshot, cluster.pod, once=True)
    for node in snapshot.nodes.values():
        theirs = find_pod_volumes(snapshot, cluster.pod, found, node, profile=PARITY)
        if theirs.fits and not theirs.provisions:
            assert find_pod_volumes(snapshot, cluster.pod, found, node, profile=VOLSCHED) == theirs


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(0, 9)), max_size=4))
def test_cheapest_columns_equals_trying_all(rows: list[dict[int, int]]) -> None:
    picks = [pick for pick in product(*rows) if len(set(pick)) == len(rows)]
    cheapest = min(
        (sum(row[column] for row, column in zip(rows, pick, strict=True)) for pick in picks), default=None
    )
    chosen = cheapest_columns(rows)
    assert (chosen is None) == (cheapest is None)
    if chosen is not None:
        assert len(set(chosen)) == len(rows)
        assert sum(row[column] for row, column in zip(rows, chosen, strict=True)) == cheapest
