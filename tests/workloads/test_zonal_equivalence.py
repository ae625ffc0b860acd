"""The affinity made by the zonal upgrade against the labels it stands for.

Three inputs are kept out, because there the conversion rules and exact equivalence exclude each other: region
labels with a separator (the rules do not split them, VolumeZone does), volumes with two equal labels in a cluster
of purely legacy nodes (the rules keep the legacy one, VolumeZone refuses every node), and, for equality, nodes
whose legacy and GA label disagree.
"""

from dataclasses import replace

from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support.objects import node, volume
from volsched.kube.manifest import reaches
from volsched.kube.meta import LEGACY_REGION, LEGACY_ZONE, REGION, TOPOLOGY_LABELS, ZONE, ZONE_SEPARATOR
from volsched.kube.selectors import NodeSelector
from volsched.kube.storage import Volume, VolumeNodeAffinity
from volsched.kube.workloads import Node
from volsched.scheduling.rules.volume_restrictions import GA_TWIN, volume_zone_filter, zone_rules
from volsched.workloads.rules.repairs import ZonalOutcome, upgrade_zonal

Labels = dict[str, str]

zones = st.sampled_from(["a", "b", "c"])
regions = st.sampled_from(["r", "s"])
zone_values = st.lists(zones, min_size=1, max_size=3).map(ZONE_SEPARATOR.join)
volume_labels = st.fixed_dictionaries(
    {},
    optional={LEGACY_ZONE: zone_values, ZONE: zone_values, LEGACY_REGION: regions, REGION: regions},
).filter(bool)
node_labels = st.fixed_dictionaries(
    {}, optional={LEGACY_ZONE: zones, ZONE: zones, LEGACY_REGION: regions, REGION: regions}
)
clusters = st.lists(node_labels, min_size=1, max_size=6)


def agrees_with_itself(labels: Labels) -> bool:
    return all(
        labels[legacy] == labels[twin] for legacy, twin in GA_TWIN.items() if legacy in labels and twin in labels
    )


def is_labelled(labels: Labels) -> bool:
    return any(key in labels for key in TOPOLOGY_LABELS)


def equal_twins_without_ga_nodes(volume_has: Labels, cluster: list[Labels]) -> bool:
    def parts(key: str) -> set[str]:
        return set(volume_has[key].split(ZONE_SEPARATOR))

    return any(
        legacy in volume_has
        and twin in volume_has
        and parts(legacy) == parts(twin)
        and not any(twin in labels for labels in cluster)
        for legacy, twin in GA_TWIN.items()
    )


def converted(volume_has: Labels, cluster: list[Labels]) -> tuple[Volume, Volume, list[Node]]:
    """The volume before and after, and the nodes."""
    nodes = [node(f"n{i}", labels=labels) for i, labels in enumerate(cluster)]
    before = volume("pv", labels=volume_has)
    result = upgrade_zonal(before, nodes)
    assert result.outcome is ZonalOutcome.CONVERTED
    return before, with_affinity(before, result.affinity), nodes


def with_affinity(made: Volume, selector: NodeSelector | None) -> Volume:
    return replace(made, node_affinity=VolumeNodeAffinity(required=selector))


@given(volume_labels, clusters)
def test_no_labelled_node_is_shut_out_that_the_labels_admit(volume_has: Labels, cluster: list[Labels]) -> None:
    before, after, nodes = converted(volume_has, cluster)
    for each in nodes:
        if is_labelled(dict(each.labels)) and volume_zone_filter(zone_rules(before), each).passed:
            event("admitted")
            assert reaches(after, each)


@given(volume_labels, clusters.filter(lambda cluster: all(map(agrees_with_itself, cluster))))
def test_labelled_nodes_are_admitted_exactly_as_by_the_labels(volume_has: Labels, cluster: list[Labels]) -> None:
    assume(not equal_twins_without_ga_nodes(volume_has, cluster))
    before, after, nodes = converted(volume_has, cluster)
    for each in nodes:
        if is_labelled(dict(each.labels)):
            assert reaches(after, each) == volume_zone_filter(zone_rules(before), each).passed


@given(volume_labels, clusters)
def test_unlabelled_nodes_are_shut_out_and_counted(volume_has: Labels, cluster: list[Labels]) -> None:
    before, after, nodes = converted(volume_has, cluster)
    unlabelled = [each for each in nodes if not is_labelled(dict(each.labels))]
    assert upgrade_zonal(before, nodes).unlabelled_nodes == len(unlabelled)
    assert not any(reaches(after, each) for each in unlabelled)


@given(volume_labels, clusters)
def test_a_second_pass_changes_nothing(volume_has: Labels, cluster: list[Labels]) -> None:
    _, after, nodes = converted(volume_has, cluster)
    assert upgrade_zonal(after, nodes).outcome is ZonalOutcome.SKIPPED


@given(volume_labels, clusters.flatmap(lambda cluster: st.tuples(st.just(cluster), st.permutations(cluster))))
def test_the_order_of_the_nodes_does_not_matter(
    volume_has: Labels, orders: tuple[list[Labels], list[Labels]]
) -> None:
    one, other = (converted(volume_has, cluster)[1] for cluster in orders)
    assert one.node_affinity == other.node_affinity
