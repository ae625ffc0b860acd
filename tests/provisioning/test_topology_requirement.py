"""Where a volume is asked for: every row of the table."""

import pytest

from volsched.kube.selectors import TopologyExpression, TopologyTerm
from volsched.provisioning.rules import (
    NO_TOPOLOGY,
    SelectedNode,
    Term,
    TopologyError,
    TopologyRequirement,
    delayed_requirement,
    fnv1,
    immediate_requirement,
    spread_start,
)

LEGACY = "failure-domain.beta.kubernetes.io/zone"
ZONE, RACK = "zone", "rack"
A, B, C = ({ZONE: zone} for zone in "abc")
NODES = [B, A, C, {"other": "x"}, A]


def zones(text: str) -> tuple[Term, ...]:
    return tuple(((ZONE, zone),) for zone in text)


def allowed(*terms: dict[str, list[str]]) -> tuple[TopologyTerm, ...]:
    return tuple(
        TopologyTerm(tuple(TopologyExpression(key, tuple(values)) for key, values in term.items()))
        for term in terms
    )


def node(labels: dict[str, str] | None = B, keys: tuple[str, ...] | None = (ZONE,)) -> SelectedNode:
    return SelectedNode(name="n1", labels=labels, keys=keys)


IN_B_OR_C = allowed({ZONE: ["c", "b"]})


@pytest.mark.parametrize(
    ("strict", "terms", "requisite", "preferred"),
    [
        (True, (), "b", "b"),
        (True, IN_B_OR_C, "b", "b"),
        (False, (), "abc", "bca"),
        (False, IN_B_OR_C, "bc", "bc"),
        (False, allowed({ZONE: ["a"]}, {ZONE: ["b"]}), "ab", "ba"),
    ],
)
def test_with_a_node(strict: bool, terms: tuple[TopologyTerm, ...], requisite: str, preferred: str) -> None:
    found = delayed_requirement(node(), strict=strict, allowed=terms, nodes=NODES)
    assert found == TopologyRequirement(zones(requisite), zones(preferred))


@pytest.mark.parametrize(
    ("terms", "immediate_topology", "claim", "found"),
    [
        (IN_B_OR_C, True, "data-web-1", TopologyRequirement(zones("bc"), zones("bc"))),
        (IN_B_OR_C, False, "data-web-0", TopologyRequirement(zones("bc"), zones("cb"))),
        ((), True, "data-web-0", TopologyRequirement(zones("abc"), zones("abc"))),
        ((), True, "data-web-1", TopologyRequirement(zones("abc"), zones("bca"))),
        ((), False, "data-web-1", None),
    ],
)
def test_without_a_node(
    terms: tuple[TopologyTerm, ...], immediate_topology: bool, claim: str, found: TopologyRequirement | None
) -> None:
    assert found == immediate_requirement(
        (ZONE,), allowed=terms, nodes=NODES, claim_name=claim, immediate_topology=immediate_topology
    )


def test_allowed_topologies_are_flattened_sorted_and_rotated_in_their_cyclic_order() -> None:
    terms = allowed({ZONE: ["a", "b"], RACK: ["r1"]}, {ZONE: ["c"]}, {RACK: ["r1"], ZONE: ["b"]})
    selected = node({ZONE: "b", RACK: "r1"}, (ZONE, RACK))
    in_a, in_b = ((RACK, "r1"), (ZONE, "a")), ((RACK, "r1"), (ZONE, "b"))
    found = delayed_requirement(selected, strict=False, allowed=terms, nodes=())
    assert found.requisite == (((ZONE, "c"),), in_a, in_b)
    assert found.preferred == (in_b, ((ZONE, "c"),), in_a)


def test_nodes_that_lack_a_key_do_not_count() -> None:
    selected = node({ZONE: "b", RACK: "r1"}, (RACK, ZONE))
    found = delayed_requirement(selected, strict=False, allowed=(), nodes=[A, {ZONE: "b", RACK: "r1"}])
    assert found.requisite == (((RACK, "r1"), (ZONE, "b")),)


@pytest.mark.parametrize(
    ("selected", "strict", "terms", "reschedule", "why"),
    [
        (node(keys=None), False, (), True, 'csinode "n1" not found'),
        (node(labels=None, keys=None), False, (), True, 'csinode "n1" not found'),
        (node(keys=()), False, (), False, "no topology keys"),
        (node(labels={}), False, (), False, "node n1 lacks the label zone"),
        (node(labels=None), False, (), False, 'node "n1" not found'),
        (node(), True, allowed({ZONE: ["a"]}), False, "is not an allowed one"),
        (node(), False, allowed({ZONE: ["a"]}), False, "is not in requisite"),
    ],
)
def test_failures_and_which_of_them_send_the_pod_elsewhere(
    selected: SelectedNode, strict: bool, terms: tuple[TopologyTerm, ...], reschedule: bool, why: str
) -> None:
    with pytest.raises(TopologyError, match=why) as caught:
        delayed_requirement(selected, strict=strict, allowed=terms, nodes=NODES)
    assert caught.value.reschedule is reschedule


@pytest.mark.parametrize("keys", [(), ("rack",)])
def test_immediately_without_any_topology_there_is_an_error(keys: tuple[str, ...]) -> None:
    with pytest.raises(TopologyError, match=NO_TOPOLOGY) as caught:
        immediate_requirement(keys, allowed=(), nodes=NODES, claim_name="data")
    assert not caught.value.reschedule


def test_the_hash_is_fnv_1_and_not_1a() -> None:
    assert (fnv1("web"), fnv1("")) == (1181096325, 2166136261)


@pytest.mark.parametrize(
    ("claim", "start"),
    [
        ("data-web-0", 0),
        ("data-web-1", 1),
        ("logs-web-1", 1),
        ("web-2", 2),
        ("data-web-4294967295", (1181096325 + 4294967295) % 2**32 % 3),
        ("data-web-4294967296", fnv1("data-web-4294967296") % 3),
        ("data-web-", fnv1("data-web-") % 3),
        ("data", fnv1("data") % 3),
        ("web-²", fnv1("web-²") % 3),
    ],
)
def test_claims_of_a_replica_begin_together(claim: str, start: int) -> None:
    assert spread_start(claim, 3) == start


@pytest.mark.parametrize("strict", [True, False])
def test_a_node_with_the_legacy_zone_label_alone_is_in_its_zone_by_that_label(strict: bool) -> None:
    stable = "topology.kubernetes.io/zone"
    own = ((LEGACY, "a"),)
    nodes = [{LEGACY: "a"}, {LEGACY: "b"}]
    old = SelectedNode(name="n1", labels=nodes[0], keys=(stable,))
    found = delayed_requirement(old, strict=strict, allowed=(), nodes=nodes)
    assert found.preferred[0] == own
    assert len(found.requisite) == (1 if strict else 2)
    both = SelectedNode(name="n1", labels={LEGACY: "a", stable: "c"}, keys=(stable,))
    assert delayed_requirement(both, strict=True, allowed=(), nodes=nodes).requisite == (((stable, "c"),),)
    anywhere = immediate_requirement((stable,), allowed=(), nodes=nodes, claim_name="data")
    assert anywhere is not None
    assert set(anywhere.requisite) == {own, ((LEGACY, "b"),)}
