"""Assumptions: when they count, what they write, and that taking them off leaves nothing behind."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects import (
    BY_NAME,
    claim,
    dynamic_class,
    in_zone,
    node,
    on_zone,
    pod,
    ref_to,
    storage_class,
    volume,
)
from volsched.kube.meta import SELECTED_NODE
from volsched.kube.storage import Volume
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND
from volsched.scheduling.rules.snapshot import Overlay, Snapshot, snapshot_of
from volsched.scheduling.rules.status import AttemptError
from volsched.scheduling.rules.volume_filter import AssumedDecision, assume_pod_volumes, revert_assumed_pod_volumes


def newer(stored: Volume) -> Volume:
    return replace(stored, meta=replace(stored.meta, resource_version="2"))


STORED = volume(rv="1")
ASSUMED = volume(rv="1", claim_ref=ref_to(claim()))


def test_an_assumption_counts_while_the_stored_version_is_the_one_it_was_made_on() -> None:
    overlay = Overlay[Volume]().assume(ASSUMED, stored=STORED)
    assert overlay.effective(STORED) == ASSUMED
    assert overlay.effective(newer(STORED)) == newer(STORED)


@pytest.mark.parametrize("version", ["0", "2"])
def test_an_assumption_on_another_version_is_refused(version: str) -> None:
    other = replace(ASSUMED, meta=replace(ASSUMED.meta, resource_version=version))
    with pytest.raises(AttemptError, match=rf'"pv" is out of sync \(stored: 1, assume: {version}\)'):
        Overlay[Volume]().assume(other, stored=STORED)


def test_an_assumption_on_a_missing_object_is_refused() -> None:
    with pytest.raises(AttemptError, match="pv"):
        Overlay[Volume]().assume(ASSUMED, stored=None)


def test_a_later_assumption_replaces_an_earlier_one() -> None:
    other = volume(rv="1", claim_ref=ref_to(claim("other")))
    overlay = Overlay[Volume]().assume(ASSUMED, stored=STORED).assume(other, stored=STORED)
    assert overlay.effective(STORED) == other


def test_restore_drops_only_the_version_it_is_given() -> None:
    overlay = Overlay[Volume]().assume(ASSUMED, stored=STORED)
    assert overlay.restore(newer(ASSUMED)).effective(STORED) == ASSUMED
    assert overlay.restore(ASSUMED).effective(STORED) == STORED
    assert overlay.restore(ASSUMED).restore(ASSUMED).assumed == {}


def test_the_store_always_wins_and_a_resync_changes_nothing() -> None:
    overlay = Overlay[Volume]().assume(ASSUMED, stored=STORED)
    assert overlay.observe("pv", STORED).assumed == {"pv": ASSUMED}
    assert overlay.observe("pv", newer(STORED)).assumed == {}
    assert overlay.observe("pv", None).assumed == {}
    assert overlay.observe("other", None) is overlay


def test_a_missing_object_is_missing_whatever_is_assumed() -> None:
    assert Snapshot(assumed_volumes=Overlay({"pv": ASSUMED})).volume("pv") is None


def reserve(snapshot: Snapshot, *claims: str, profile: Profile = VOLSCHED) -> tuple[Snapshot, AssumedDecision]:
    wanting = pod(*claims)
    chosen = attempt(snapshot, wanting, profile=profile).chosen
    assert chosen is not None
    return assume_pod_volumes(snapshot, wanting, snapshot.nodes[chosen.node], chosen.answer, profile=profile)


def world(*more: Any) -> Snapshot:
    return snapshot_of([node("n1"), node("n2"), storage_class(), dynamic_class(), *more])


def test_a_reserved_volume_is_no_longer_free_for_the_next_pod() -> None:
    before = world(claim("x"), claim("y"), volume("a"))
    after, assumption = reserve(before, "x")
    assert [assumed.volume.name for assumed in assumption.volumes] == ["a"]
    second = attempt(after, pod("y", name="next"), profile=VOLSCHED)
    assert second.chosen is None
    assert all(verdict.status.reasons == (NO_VOLUME_TO_BIND,) for verdict in second.verdicts)


def test_the_same_claim_finds_its_reserved_volume_again() -> None:
    after, _ = reserve(world(claim("x"), volume("a"), volume("b")), "x")
    again, assumption = reserve(after, "x")
    assert [assumed.volume.name for assumed in assumption.volumes] == ["a"]
    assert not assumption.volumes[0].changed
    assert again.assumed_volumes.assumed.keys() == {"a"}


def test_a_provisioned_claim_commits_the_next_pod_that_shares_it() -> None:
    after, assumption = reserve(world(claim("x", cls="dyn")), "x", profile=BY_NAME)
    assert assumption.claims[0].meta.annotations == {SELECTED_NODE: "n1"}
    second = attempt(after, pod("x", name="next"), profile=VOLSCHED)
    assert [verdict.node for verdict in second.verdicts if verdict.status.passed] == ["n1"]


def test_reverting_restores_the_snapshot_and_is_idempotent() -> None:
    before = world(claim("x"), claim("y", cls="dyn"), volume("a"))
    after, assumption = reserve(before, "x", "y")
    assert after != before
    reverted = revert_assumed_pod_volumes(after, assumption)
    assert reverted == before
    assert revert_assumed_pod_volumes(reverted, assumption) == before


def test_a_failure_half_way_assumes_nothing() -> None:
    before = world(claim("x"), claim("y", cls="dyn"), volume("a"))
    wanting = pod("x", "y")
    chosen = attempt(before, wanting, profile=VOLSCHED).chosen
    assert chosen is not None
    changed = replace(before, stored_claims={**before.stored_claims, "db/y": claim("y", cls="dyn", rv="7")})
    with pytest.raises(AttemptError, match=r'"db/y" is out of sync \(stored: 7, assume: 1\)'):
        assume_pod_volumes(changed, wanting, before.nodes["n1"], chosen.answer, profile=VOLSCHED)
    assert changed.assumed_volumes.assumed == {}


def test_claims_bound_meanwhile_are_checked_once_more() -> None:
    before = snapshot_of([in_zone("n1", "a"), storage_class(), claim("x"), volume("a")])
    wanting = pod("x")
    chosen = attempt(before, wanting, profile=VOLSCHED).chosen
    assert chosen is not None
    far = volume("far", nodeAffinity=on_zone("b"), phase="Bound")
    meanwhile = snapshot_of([in_zone("n1", "a"), storage_class(), claim("x", bound_to="far"), volume("a"), far])
    with pytest.raises(AttemptError, match="db/x"):
        assume_pod_volumes(meanwhile, wanting, meanwhile.nodes["n1"], chosen.answer, profile=VOLSCHED)
    _, assumption = assume_pod_volumes(meanwhile, wanting, meanwhile.nodes["n1"], chosen.answer, profile=PARITY)
    assert assumption.all_bound


def test_without_a_decision_there_is_nothing_to_do() -> None:
    before = world()
    assert assume_pod_volumes(before, pod(), before.nodes["n1"], None, profile=VOLSCHED) == (
        before, AssumedDecision(all_bound=True),
    )  # fmt: skip
