"""Quantities and selectors as algebra."""

from contextlib import suppress
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from volsched.kube.quantity import Quantity, QuantityError, SuffixFamily, parse_quantity
from volsched.kube.selectors import (
    LabelSelector,
    NodeSelector,
    NodeTerm,
    Requirement,
    label_selector_matches,
    label_selector_problem,
    node_selector_matches,
    node_term_matches,
)

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

texts = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}.{fraction}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from([*DECIMAL, *BINARY, "e3", "E-2"]),
)
quantities = texts.map(parse_quantity)
keys = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["", "1", "2", "30", "x"])
labels = st.dictionaries(keys, values)
requirements = st.builds(
    Requirement,
    keys,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in"]),
    st.lists(values, max_size=2).map(tuple),
)
terms = st.builds(NodeTerm, st.lists(requirements, max_size=3).map(tuple))


@given(quantities)
def test_canonical_output_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    printed = str(quantity)
    assert parse_quantity(printed) == quantity
    assert str(parse_quantity(printed)) == printed
    assert "." not in printed


@given(quantities, quantities)
def test_order_is_the_order_of_the_exact_amounts(one: Quantity, other: Quantity) -> None:
    left, right = Fraction(one.nano, 10**9), Fraction(other.nano, 10**9)
    assert (one < other, one == other, one > other) == (left < right, left == right, left > right)
    assert one.value() - 1 < left <= one.value()


@given(st.integers(-(10**12), 10**12), st.sampled_from([*DECIMAL, *BINARY]))
def test_whole_amounts_are_what_their_suffix_says(amount: int, suffix: str) -> None:
    scale = Fraction(2) ** BINARY[suffix] if suffix in BINARY else Fraction(10) ** DECIMAL[suffix]
    quantity = parse_quantity(f"{amount}{suffix}")
    if quantity.family is not SuffixFamily.BINARY or abs(amount * scale) < 2**63:
        assert Fraction(quantity.nano, 10**9) == amount * scale


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    with suppress(QuantityError):
        assert isinstance(parse_quantity(text), Quantity)


@given(st.lists(terms, max_size=4), labels)
def test_terms_are_alternatives_in_any_order(alternatives: list[NodeTerm], given_labels: dict[str, str]) -> None:
    expected = any(node_term_matches(term, given_labels, name=None) for term in alternatives)
    for order in (alternatives, alternatives[::-1]):
        assert node_selector_matches(NodeSelector(tuple(order)), given_labels, name=None) is expected


@given(terms, requirements, labels)
def test_a_further_requirement_only_narrows_a_term(
    term: NodeTerm, extra: Requirement, given_labels: dict[str, str]
) -> None:
    narrower = NodeTerm((*term.match_expressions, extra))
    if term.match_expressions and node_term_matches(narrower, given_labels, name=None):
        assert node_term_matches(term, given_labels, name=None)


@given(keys, st.lists(values, min_size=1, max_size=2).map(tuple), labels)
def test_in_and_not_in_and_exists_and_does_not_exist_are_opposites(
    key: str, wanted: tuple[str, ...], given_labels: dict[str, str]
) -> None:
    def holds(operator: str, given_values: tuple[str, ...]) -> bool:
        return node_term_matches(NodeTerm((Requirement(key, operator, given_values),)), given_labels, name=None)

    assert holds("In", wanted) is not holds("NotIn", wanted)
    assert holds("Exists", ()) is not holds("DoesNotExist", ())


@given(st.dictionaries(keys, values), labels)
def test_match_labels_are_in_expressions_with_one_value(
    wanted: dict[str, str], given_labels: dict[str, str]
) -> None:
    spelled = LabelSelector({}, tuple(Requirement(key, "In", (value,)) for key, value in wanted.items()))
    assert label_selector_problem(spelled) is None
    assert label_selector_matches(LabelSelector(wanted), given_labels) is label_selector_matches(
        spelled, given_labels
    )
