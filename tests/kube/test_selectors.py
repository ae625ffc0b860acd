"""Node, topology and label selectors, edge by edge."""

import pytest

from volsched.kube.selectors import (
    LabelSelector,
    NodeSelector,
    NodeTerm,
    Requirement,
    TopologyExpression,
    TopologyTerm,
    label_selector_matches,
    label_selector_problem,
    node_selector_matches,
    node_term_matches,
    node_term_problem,
    topology_allows,
)

Expression = tuple[str, str, tuple[str, ...]]


def term(*expressions: Expression, fields: tuple[Expression, ...] = ()) -> NodeTerm:
    return NodeTerm(
        tuple(Requirement(*expression) for expression in expressions),
        tuple(Requirement(*field) for field in fields),
    )


@pytest.mark.parametrize(
    ("operator", "values", "present", "missing"),
    [
        ("In", ("a", "b"), True, False),
        ("In", ("b",), False, False),
        ("NotIn", ("a",), False, True),
        ("NotIn", ("b",), True, True),
        ("Exists", (), True, False),
        ("DoesNotExist", (), False, True),
    ],
)
def test_operators_on_a_present_and_a_missing_label(
    operator: str, values: tuple[str, ...], present: bool, missing: bool
) -> None:
    wanted = term(("zone", operator, values))
    assert node_term_matches(wanted, {"zone": "a"}, name=None) is present
    assert node_term_matches(wanted, {}, name=None) is missing


@pytest.mark.parametrize(
    "expression",
    [
        ("zone", "in", ("a",)),
        ("zone", "", ("a",)),
        ("zone", "In", ()),
        ("zone", "NotIn", ()),
        ("zone", "Exists", ("a",)),
        ("zone", "DoesNotExist", ("a",)),
        ("gen", "Gt", ()),
        ("gen", "Gt", ("1", "2")),
        ("gen", "Gt", ("x",)),
        ("gen", "Lt", ("+3",)),
        ("gen", "Lt", ("-3",)),
        ("a/b/c", "Exists", ()),
        ("", "DoesNotExist", ()),
        ("/zone", "DoesNotExist", ()),
        ("zone", "NotIn", ("not a label value",)),
        ("zone", "NotIn", ("x" * 64,)),
    ],
)
def test_a_malformed_requirement_makes_its_term_unable_to_match(expression: Expression) -> None:
    selector = NodeSelector((term(expression, ("other", "DoesNotExist", ())),))
    assert not node_selector_matches(selector, {"zone": "a", "gen": "2"}, name=None)
    assert node_term_problem(selector.node_selector_terms[0]) is not None


def test_worked_example_of_three_terms() -> None:
    selector = NodeSelector(
        (term(("zone", "In", ("a",)), ("rack", "In", ("r1",))), term(("zone", "Gt", ("x",))), term())
    )
    assert node_selector_matches(selector, {"zone": "a", "rack": "r1"}, name=None)
    assert not node_selector_matches(selector, {"zone": "a"}, name=None)
    assert not node_selector_matches(selector, {}, name=None)


def test_one_key_may_be_constrained_twice() -> None:
    wanted = term(("zone", "In", ("a", "b")), ("zone", "NotIn", ("b",)))
    assert node_term_matches(wanted, {"zone": "a"}, name=None)
    assert not node_term_matches(wanted, {"zone": "b"}, name=None)


@pytest.mark.parametrize(
    ("field", "on_n1"),
    [
        (("metadata.name", "In", ("n1",)), True),
        (("metadata.name", "NotIn", ("n1",)), False),
        (("metadata.uid", "In", ("n1",)), False),
        (("metadata.uid", "NotIn", ("n1",)), True),
        (("metadata.name", "Exists", ()), False),
        (("metadata.name", "In", ("n1", "n2")), False),
    ],
)
def test_match_fields_against_a_node_name(field: Expression, on_n1: bool) -> None:
    assert node_term_matches(term(fields=(field,)), {}, name="n1") is on_n1


def topology(**keys: tuple[str, ...]) -> TopologyTerm:
    return TopologyTerm(tuple(TopologyExpression(key, values) for key, values in keys.items()))


def test_topologies_of_several_labels() -> None:
    terms = [topology(zone=("a",), rack=("r1",)), topology(zone=("b",), rack=("r1", "r2"))]
    allowed = {("a", "r1"), ("b", "r1"), ("b", "r2")}
    for zone in "ab":
        for rack in ("r1", "r2"):
            assert topology_allows(terms, {"zone": zone, "rack": rack}) is ((zone, rack) in allowed)
    assert not topology_allows(terms, {"zone": "a"})


@pytest.mark.parametrize("broken", [topology(), topology(zone=()), topology(zone=("a", "not ok"))])
def test_a_broken_topology_term_matches_nothing_and_hides_no_other(broken: TopologyTerm) -> None:
    assert not topology_allows([broken], {"zone": "a"})
    assert topology_allows([broken, topology(zone=("a",))], {"zone": "a"})


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (LabelSelector(), {}, True),
        (LabelSelector({"a": "1"}), {"a": "1", "b": "2"}, True),
        (LabelSelector({"a": "1"}), {"a": "2"}, False),
        (LabelSelector({"a": ""}), {}, False),
        (LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1"}, False),
        (LabelSelector({}, (Requirement("b", "NotIn", ("2",)),)), {}, True),
    ],
)
def test_label_selectors_and_everything(selector: LabelSelector, labels: dict[str, str], expected: bool) -> None:
    assert label_selector_problem(selector) is None
    assert label_selector_matches(selector, labels) is expected


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (Requirement("a", "Gt", ("1",)), '"Gt" is not a valid label selector operator'),
        (
            Requirement("a", "In"),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            Requirement("a", "Exists", ("x", "y")),
            'values: Invalid value: ["x","y"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_an_invalid_label_selector_says_why_in_the_words_of_the_reference(
    requirement: Requirement, problem: str
) -> None:
    assert label_selector_problem(LabelSelector({}, (requirement,))) == problem


def test_labels_are_judged_before_expressions_and_name_the_culprit() -> None:
    selector = LabelSelector({"a b": "1"}, (Requirement("a", "Gt"),))
    assert '"a b"' in (label_selector_problem(selector) or "")
    assert '"-x"' in (label_selector_problem(LabelSelector({"a": "-x"})) or "")
