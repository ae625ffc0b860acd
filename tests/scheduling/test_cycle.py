"""One attempt over all nodes: who is chosen, and what is said when nobody is."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.objects import (
    BY_NAME,
    claim,
    csi_node,
    dynamic_class,
    in_zone,
    local_volume,
    node,
    on_node,
    on_zone,
    pod,
    storage_class,
    volume,
)
from volsched.kube.meta import ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt, attempt
from volsched.scheduling.rules.profile import PARITY, VOLSCHED
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.status import Code


def test_the_closest_fit_wins_and_the_others_are_runners_up() -> None:
    world = snapshot_of([
        node("n1"), node("n2"), node("n3"), storage_class(), claim("x", "8Gi"),
        local_volume("a", "40Gi", "n1"), local_volume("b", "8Gi", "n2"),
    ])  # fmt: skip
    made = attempt(world, pod("x"), profile=VOLSCHED)
    assert made.chosen is not None
    assert (made.chosen.node, made.chosen.score) == ("n2", 100)
    assert [(other.node, other.score) for other in made.runners_up] == [("n1", 60)]


def test_seed_scoring_changes_the_order_of_nodes_only_where_volumes_differ() -> None:
    same = snapshot_of([node("n2"), node("n1"), dynamic_class(), claim("x", cls="dyn")])
    chosen = attempt(same, pod("x"), profile=BY_NAME).chosen
    assert chosen is not None
    assert chosen.node == "n1"


def test_the_message_counts_reasons_and_sorts_them() -> None:
    world = snapshot_of([
        in_zone("n1", "a"), in_zone("n2", "b"), in_zone("n3", "b"), storage_class(), claim("x"),
        claim("bound", bound_to="pv"), volume(nodeAffinity=on_zone("a"), phase="Bound"),
    ])  # fmt: skip
    made = attempt(world, pod("bound", "x"), profile=VOLSCHED)
    assert made.chosen is None
    assert made.status.reasons == (
        "0/3 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity, "
        "3 node(s) didn't find available persistent volumes to bind.",
    )


def test_a_refused_pod_says_why_without_looking_at_nodes() -> None:
    made = attempt(snapshot_of([node("n1")]), pod("gone"), profile=VOLSCHED)
    assert made.status.reasons == ('0/1 nodes are available: persistentvolumeclaim "gone" not found.',)
    assert made.verdicts == ()


def test_an_error_on_one_node_fails_the_attempt() -> None:
    broken = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
    made = attempt(snapshot_of([node("n1"), storage_class(), claim(selector=broken)]), pod("data"), profile=PARITY)
    assert made.status.code is Code.ERROR
    assert made.chosen is None


def test_zone_labels_of_bound_volumes_count() -> None:
    labelled = volume(labels={ZONE: "a"}, phase="Bound")
    world = snapshot_of([in_zone("n1", "b"), in_zone("n2", "a"), claim(bound_to="pv"), labelled])
    made = attempt(world, pod("data"), profile=VOLSCHED)
    assert made.chosen is not None
    assert made.chosen.node == "n2"
    assert made.verdicts[0].status.reasons == ("node(s) had no available volume zone",)


def test_a_pod_without_claims_fits_everywhere() -> None:
    made = attempt(snapshot_of([node("n1"), node("n2")]), pod(), profile=VOLSCHED)
    assert made.chosen is not None
    assert len(made.runners_up) == 1


def test_a_bound_claim_whose_volume_is_gone_is_refused_before_nodes_are_looked_at() -> None:
    made = attempt(snapshot_of([node("n1"), claim(bound_to="gone")]), pod("data"), profile=VOLSCHED)
    assert made.status.reasons == ('0/1 nodes are available: persistentvolume "gone" not found.',)


def test_attach_limits_count_in_both_profiles_and_one_node_that_could_be_cleared_is_enough() -> None:
    limits = {"csi_example_com": 0}
    world = snapshot_of([
        node("n1"), in_zone("n2", "b"), storage_class(), claim("x", bound_to="pv"), csi_node("n1", **limits),
        volume(phase="Bound", nodeAffinity=on_node("n1")),
    ])  # fmt: skip
    for profile in (PARITY, VOLSCHED):
        made = attempt(world, pod("x"), profile=profile)
        assert made.status.code is Code.UNSCHEDULABLE
        assert [verdict.status.code for verdict in made.verdicts] == [Code.UNSCHEDULABLE, Code.UNRESOLVABLE]


def test_refusals_of_the_sibling_filters_are_explained_too() -> None:
    labelled = volume(labels={ZONE: "a"}, phase="Bound")
    world = snapshot_of([in_zone("n1", "b"), claim(bound_to="pv"), labelled])
    (rejection,) = attempt(world, pod("data"), profile=VOLSCHED).verdicts[0].status.rejections
    (miss,) = rejection.misses
    assert (rejection.claim, miss.volume, miss.failures[0].wanted, miss.failures[0].got) == (
        "db/data", "pv", f"{ZONE} in [a]", "b",
    )  # fmt: skip
    exclusive = claim(modes=("ReadWriteOncePod",), bound_to="pv")
    holder = pod("data", name="holder", on="n1")
    world = snapshot_of([node("n1"), exclusive, volume(phase="Bound"), holder])
    (rejection,) = attempt(world, pod("data"), profile=VOLSCHED).verdicts[0].status.rejections
    assert (rejection.claim, rejection.failures[0].got) == ("db/data", "used by pod db/holder on node n1")


def by_rules(objects: Sequence[Object], wanting: Pod) -> Attempt:
    return attempt(snapshot_of(objects), wanting, profile=VOLSCHED)


def by_index(objects: Sequence[Object], wanting: Pod) -> Attempt:
    return Index(objects).decide(wanting)


@pytest.mark.parametrize("decide", [by_rules, by_index])
def test_a_node_that_match_fields_do_not_name_is_left_out_before_anybody_is_asked(
    decide: Callable[[Sequence[Object], Pod], Attempt],
) -> None:
    """As in the reference: whatever else is against it, that is the reason."""
    nodes = [node("a", spec={"unschedulable": True}), node("b", spec={"unschedulable": True}), node("c")]
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}
    made = decide(nodes, pod(affinity={"nodeAffinity": required}))
    assert made.status.reasons == (
        "0/3 nodes are available: 1 node(s) were unschedulable, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    )
    assert made.rejectors == {"NodeUnschedulable", "NodeAffinity"}
