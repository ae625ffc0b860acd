"""Quantities: the grammar, exact values and canonical output."""

from fractions import Fraction

import pytest

from volsched.kube.quantity import INT64_MAX, Quantity, QuantityError, SuffixFamily, parse_quantity

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "exact", "family"),
    [
        ("5Gi", 5 * GIB, SuffixFamily.BINARY),
        ("5G", 5 * 10**9, SuffixFamily.DECIMAL),
        ("100.035Ki", Fraction(10243584, 100), SuffixFamily.BINARY),
        ("0.05Gi", Fraction(536870912, 10), SuffixFamily.BINARY),
        ("1500m", Fraction(3, 2), SuffixFamily.DECIMAL),
        ("1E", 10**18, SuffixFamily.DECIMAL),
        ("1E3", 1000, SuffixFamily.EXPONENT),
        ("1e3", 1000, SuffixFamily.EXPONENT),
        ("1e+3", 1000, SuffixFamily.EXPONENT),
        ("1e-3", Fraction(1, 1000), SuffixFamily.EXPONENT),
        (".5", Fraction(1, 2), SuffixFamily.DECIMAL),
        ("1.", 1, SuffixFamily.DECIMAL),
        ("1.G", 10**9, SuffixFamily.DECIMAL),
        ("+5", 5, SuffixFamily.DECIMAL),
        ("-5Ki", -5120, SuffixFamily.BINARY),
        ("9Ei", INT64_MAX, SuffixFamily.BINARY),
        ("12E", 12 * 10**18, SuffixFamily.DECIMAL),
        ("3.001n", Fraction(4, 10**9), SuffixFamily.DECIMAL),
        ("-3.001n", Fraction(-4, 10**9), SuffixFamily.DECIMAL),
        ("0.000000000001Ki", Fraction(2, 10**9), SuffixFamily.DECIMAL),
    ],
)
def test_quantities_are_exact(text: str, exact: int | Fraction, family: SuffixFamily) -> None:
    quantity = parse_quantity(text)
    assert Fraction(quantity.nano, 10**9) == exact
    assert quantity.family is family


@pytest.mark.parametrize(
    "text",
    ["", "1K", "1ki", "1mi", "1e", "1ee3", "1Ki-", "1i", "1 Gi", "1KiB", "10GB", "0x10", "1e1.5", "+", ".", "Ki",
     "--1", "1..2", "٣", "1e99", "1" * 200, "1\n"],
)  # fmt: skip
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("100.035Ki", 102436), ("0.05Gi", 53687092), ("1500m", 2), ("1n", 1), ("-1500m", -1), ("0", 0)],
)
def test_value_rounds_up_to_whole_units(text: str, whole: int) -> None:
    assert parse_quantity(text).value() == whole


def test_the_reference_reads_what_exceeds_an_int64_as_zero() -> None:
    assert parse_quantity("900E").int64_value() == 0
    assert parse_quantity("900E").value() == 900 * 10**18
    assert parse_quantity("9E").int64_value() == 9 * 10**18
    assert parse_quantity("9Ei").int64_value() == INT64_MAX


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.5Gi", "1536Mi"), ("1.5", "1500m"), ("1000k", "1M"), ("0", "0"), ("0Gi", "0"), ("0.5Ki", "512"),
        ("100.035Ki", "102435840m"), ("1024Mi", "1Gi"), ("1e3", "1e3"), ("1500e3", "1500e3"), ("1e4", "10e3"),
        ("1024", "1024"), ("5000000000", "5G"), ("12E", "12E"), ("1000E", "1000E"), ("-1.5Gi", "-1536Mi"),
        ("100000e0", "100e3"), ("1n", "1n"),
    ],
)  # fmt: skip
def test_canonical_output_keeps_the_family(text: str, canonical: str) -> None:
    assert str(parse_quantity(text)) == canonical


def test_equality_looks_at_the_amount_only() -> None:
    assert parse_quantity("1024Mi") == parse_quantity("1Gi")
    assert hash(parse_quantity("1000m")) == hash(parse_quantity("1"))
    assert parse_quantity("5G") < parse_quantity("5Gi")
    assert Quantity(1) != "1"
