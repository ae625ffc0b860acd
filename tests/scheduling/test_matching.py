"""Which volume a claim gets: the worked example, the rules one by one, and what is told about near misses."""

from typing import Any

import pytest

from tests.support.objects import ROX, RWO, RWX, claim, local_volume, node, on_zone, ref_to, volume
from volsched.kube.manifest import bind_volume, is_bound_to
from volsched.kube.meta import BOUND_BY_CONTROLLER, ZONE
from volsched.kube.storage import Volume
from volsched.scheduling.rules.matching import Search, find_for_controller, find_matching_volume, nearest_misses
from volsched.scheduling.rules.status import Rule

ZONE_A = node("n", labels={ZONE: "a"})
WANTING = claim("data", "8Gi")


def in_a(name: str, size: str, **kw: Any) -> Volume:
    return volume(name, size, nodeAffinity=on_zone(kw.pop("zone", "a")), **kw)


def worked_example() -> list[Volume]:
    return [
        in_a("p1", "5Gi"),
        in_a("p2", "10Gi", zone="b"),
        in_a("p3", "10Gi", modes=(ROX,)),
        volume("p4", "20Gi", modes=(RWO, ROX)),
        in_a("p5", "10Gi", phase="Released"),
        in_a("p6", "12Gi"),
    ]


P8 = in_a("p8", "50Gi", phase="Released", claim_ref=ref_to(WANTING))
P9 = in_a("p9", "50Gi", zone="b", claim_ref=ref_to(WANTING))


@pytest.mark.parametrize(
    ("extra", "expected"),
    [([], "p6"), ([P8], "p8"), ([P9], None), ([P8, P9], "p8")],
    ids=["best fit", "pre-bound wins", "pre-bound elsewhere hides all", "first pre-bound by name decides"],
)
def test_worked_example(extra: list[Volume], expected: str | None) -> None:
    found = find_matching_volume(Search(claim=WANTING, node=ZONE_A), worked_example() + extra)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(
    ("candidate", "rule"),
    [
        (volume(claim_ref=ref_to(claim("other"))), Rule.UNCLAIMED),
        (volume(size="1Gi"), Rule.CAPACITY),
        (volume(volumeMode="Block"), Rule.VOLUME_MODE),
        (volume(volumeAttributesClassName="gold"), Rule.ATTRIBUTES_CLASS),
        (volume(deleted=True), Rule.NOT_DELETED),
        (volume(phase=""), Rule.PHASE),
        (volume(cls="slow"), Rule.CLASS),
        (in_a("pv", "10Gi", zone="b"), Rule.NODE_AFFINITY),
        (volume(modes=(RWX,)), Rule.ACCESS_MODES),
    ],
)
def test_each_rule_alone_keeps_a_volume_out_and_is_named(candidate: Volume, rule: Rule) -> None:
    search = Search(claim=WANTING, node=ZONE_A)
    assert find_matching_volume(search, [candidate]) is None
    (miss,) = nearest_misses(search, [candidate])
    assert [failure.rule for failure in miss.failures] == [rule]


def test_selectors_and_taken_volumes_keep_a_volume_out() -> None:
    ssd = claim(selector={"matchLabels": {"tier": "ssd"}})
    search = Search(claim=ssd, node=ZONE_A, taken={"b"})
    volumes = [volume("a", labels={"tier": "hdd"}), volume("b", labels={"tier": "ssd"})]
    assert find_matching_volume(search, volumes) is None
    assert {miss.failures[0].rule for miss in nearest_misses(search, volumes)} == {Rule.SELECTOR, Rule.NOT_TAKEN}


def test_an_absent_and_an_empty_attributes_class_are_equal() -> None:
    wanting = claim(volumeAttributesClassName="")
    assert find_matching_volume(Search(claim=wanting, node=ZONE_A), [volume()]) is not None


def test_a_claim_without_a_request_takes_the_smallest() -> None:
    found = find_matching_volume(
        Search(claim=claim(size=None), node=ZONE_A), [volume("a", "2Gi"), volume("b", "1Gi")]
    )
    assert found is not None
    assert found.name == "b"


def test_the_nearest_miss_fails_the_fewest_rules_and_says_what_was_wanted() -> None:
    far = volume("far", "1Gi", phase="Failed", modes=(ROX,))
    near = volume("near", "7Gi")
    misses = nearest_misses(Search(claim=WANTING, node=ZONE_A), [far, near])
    assert [miss.volume for miss in misses] == ["near", "far"]
    (failure,) = misses[0].failures
    assert (failure.wanted, failure.got) == ("at least 8Gi", "7Gi")


def test_the_controller_leaves_free_volumes_of_delayed_classes_to_the_scheduler() -> None:
    free, prebound = volume("free"), volume("prebound", "90Gi", claim_ref=ref_to(WANTING, uid=""))
    assert find_for_controller(WANTING, [free], delay_binding=True) is None
    assert find_for_controller(WANTING, [free, prebound], delay_binding=True) == prebound
    assert find_for_controller(WANTING, [free], delay_binding=False) == free


def test_the_controller_takes_a_free_volume_of_an_earlier_group_before_a_prebound_one() -> None:
    free = volume("free", modes=(RWO,))
    prebound = volume("prebound", modes=(RWO, ROX), claim_ref=ref_to(WANTING))
    assert find_for_controller(WANTING, [free, prebound], delay_binding=False) == free
    assert find_matching_volume(Search(claim=WANTING, node=ZONE_A), [free, prebound]) == prebound


def test_the_controller_counts_modes_before_it_looks_at_their_names() -> None:
    wanting = claim(modes=(RWX,))
    more, exact = volume("more", modes=(ROX, RWX)), volume("exact", "90Gi", modes=(RWX,))
    assert find_for_controller(wanting, [more, exact], delay_binding=False) == exact


def test_the_controller_ignores_nodes() -> None:
    assert find_for_controller(WANTING, [local_volume("a", "10Gi", "gone")], delay_binding=False) is not None


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (None, False),
        (ref_to(WANTING, uid=""), True),
        (ref_to(WANTING), True),
        (ref_to(WANTING, uid="u0"), False),
        (ref_to(claim("data", namespace="other"), uid=""), False),
    ],
)
def test_whom_a_volume_names(ref: dict[str, str] | None, expected: bool) -> None:
    assert is_bound_to(volume(claim_ref=ref), WANTING) is expected


def test_binding_a_free_volume_writes_the_reference_and_the_mark() -> None:
    bound, changed = bind_volume(volume(), WANTING)
    assert changed
    assert bound.claim_ref is not None
    assert (bound.claim_ref.kind, bound.claim_ref.uid, bound.claim_ref.resource_version) == (
        "PersistentVolumeClaim", "uid-data", "1",
    )  # fmt: skip
    assert bound.meta.annotations == {BOUND_BY_CONTROLLER: "yes"}


def test_binding_a_volume_prebound_by_name_fills_in_the_uid_without_the_mark() -> None:
    bound, changed = bind_volume(volume(claim_ref=ref_to(WANTING, uid="")), WANTING)
    assert changed
    assert bound.claim_ref is not None
    assert bound.claim_ref.uid == "uid-data"
    assert bound.meta.annotations == {}


def test_binding_a_volume_that_names_the_claim_completely_changes_nothing() -> None:
    complete = volume(claim_ref=ref_to(WANTING))
    assert bind_volume(complete, WANTING) == (complete, False)
