"""What must hold for every decision, whatever the cluster."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.extent import extended, extent
from tests.support.objects import pod
from tests.support.random_clusters import Cluster, clusters, volumes
from volsched.kube.manifest import reaches
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.pod_claims import classify_claims
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.volume_filter import (
    assume_pod_volumes,
    find_pod_volumes,
    revert_assumed_pod_volumes,
)

pytestmark = extended

profiles = st.sampled_from([PARITY, VOLSCHED])


@given(clusters(couplings=False), st.data())
@settings(max_examples=extent(50, 200), deadline=None)
def test_another_free_volume_never_makes_a_node_unfit(cluster: Cluster, data: st.DataObject) -> None:
    """Of `volsched`: greedy has no such guarantee."""
    extra = data.draw(volumes("extra", []))
    before, after = cluster.snapshot, snapshot_of([*cluster.objects, extra])
    for name, node in before.nodes.items():
        claims = classify_claims(before, cluster.pod, once=True)
        if find_pod_volumes(before, cluster.pod, claims, node, profile=VOLSCHED).fits:
            claims = classify_claims(after, cluster.pod, once=True)
            assert find_pod_volumes(after, cluster.pod, claims, after.nodes[name], profile=VOLSCHED).fits


@given(clusters(), profiles)
@settings(max_examples=extent(50, 200), deadline=None)
def test_no_volume_is_given_twice_and_each_reaches_its_node(cluster: Cluster, profile: Profile) -> None:
    snapshot = cluster.snapshot
    for verdict in attempt(snapshot, cluster.pod, profile=profile).verdicts:
        given_volumes = [binding.volume for binding in verdict.answer.bindings]
        assert len({volume.name for volume in given_volumes}) == len(given_volumes)
        assert all(reaches(volume, snapshot.nodes[verdict.node]) for volume in given_volumes)
        if verdict.answer.fits:
            served = {b.claim.key for b in verdict.answer.bindings} | {
                p.claim.key for p in verdict.answer.provisions
            }
            assert served == {claim.key for claim in cluster.snapshot.stored_claims.values()}


@given(clusters(), profiles)
@settings(max_examples=extent(38, 150), deadline=None)
def test_deciding_is_deterministic_and_changes_nothing(cluster: Cluster, profile: Profile) -> None:
    snapshot = cluster.snapshot
    shuffled = replace(snapshot_of(reversed(cluster.objects)), reserved=cluster.reserved)
    assert attempt(snapshot, cluster.pod, profile=profile) == attempt(shuffled, cluster.pod, profile=profile)
    assert snapshot == cluster.snapshot


@given(clusters(), profiles)
@settings(max_examples=extent(38, 150), deadline=None)
def test_what_is_reserved_is_seen_by_the_next_pod_and_reverting_restores_all(
    cluster: Cluster, profile: Profile
) -> None:
    snapshot = cluster.snapshot
    chosen = attempt(snapshot, cluster.pod, profile=profile).chosen
    if chosen is None:
        return
    node = snapshot.nodes[chosen.node]
    assumed, reservation = assume_pod_volumes(snapshot, cluster.pod, node, chosen.answer, profile=profile)
    mine = {held.volume.name: held.claim.key for held in reservation.volumes}
    for other in snapshot.stored_claims.values():
        wanting = pod(other.name, name="next")
        for verdict in attempt(assumed, wanting, profile=profile).verdicts:
            for binding in verdict.answer.bindings:
                assert mine.get(binding.volume.name, binding.claim.key) == binding.claim.key
    assert revert_assumed_pod_volumes(assumed, reservation) == snapshot


@given(clusters(couplings=False))
@settings(max_examples=extent(25, 100), deadline=None)
def test_every_refusal_is_explained(cluster: Cluster) -> None:
    for verdict in attempt(cluster.snapshot, cluster.pod, profile=VOLSCHED).verdicts:
        reasons = {rejection.reason for rejection in verdict.answer.rejections}
        assert reasons >= set(verdict.answer.reasons)
        assert bool(reasons) is bool(verdict.answer.reasons)
        for rejection in verdict.answer.rejections:
            assert rejection.failures or rejection.misses
            assert rejection.claim
