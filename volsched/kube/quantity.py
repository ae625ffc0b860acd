"""Kubernetes quantities as exact integers of 10^-9 units.

Sizes decide which volume a claim gets, so they are never floats: `5G` and `5Gi` differ, `100.5Mi` fits `101Mi`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, total_ordering

NANO = 10**9
INT64_MAX = 2**63 - 1
# Longer input, or a larger exponent, is refused: no real size needs it, and parsing it would only waste time.
MAX_LENGTH = 128
MAX_EXPONENT = 64

_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([A-Za-z0-9+-]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_POWER = {power: suffix for suffix, power in _DECIMAL.items()}


class SuffixFamily(StrEnum):
    """How a quantity was written, and so how it is printed."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class QuantityError(ValueError):
    """The text is not a quantity."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount; equality and order compare the amount only, never its notation."""

    nano: int
    family: SuffixFamily = SuffixFamily.DECIMAL

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        return _canonical(self)

    def value(self) -> int:
        """Whole units (bytes), rounded up."""
        return -(-self.nano // NANO)

    def int64_value(self) -> int:
        """`value()` as the reference computes it: an amount that does not fit an int64 silently reads as 0."""
        whole = self.value()
        return whole if abs(whole) <= INT64_MAX else 0


ZERO = Quantity(0)


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Read `5Gi`, `1.5`, `1e3`, `100m`, …; raise QuantityError with the reason otherwise."""
    if len(text) > MAX_LENGTH:
        raise QuantityError(f"longer than {MAX_LENGTH} characters")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise QuantityError("not a number followed by a suffix such as Gi or G")
    sign, whole, fraction, suffix = shape[1], shape[2], shape[3] or "", shape[4]
    if not whole and not fraction:
        raise QuantityError("no digits")
    two, ten, family = _scale(suffix)
    ten -= len(fraction)
    numerator = int(whole + fraction) * NANO * 2**two
    nano = numerator * 10**ten if ten >= 0 else -(-numerator // 10**-ten)
    if family is SuffixFamily.BINARY:
        nano = min(nano, INT64_MAX * NANO)
        if 0 < nano < NANO:
            family = SuffixFamily.DECIMAL
    return Quantity(-nano if sign == "-" else nano, family)


def _scale(suffix: str) -> tuple[int, int, SuffixFamily]:
    """The suffix as (power of two, power of ten, family)."""
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix], SuffixFamily.DECIMAL
    if suffix in _BINARY:
        return _BINARY[suffix], 0, SuffixFamily.BINARY
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(f'unknown suffix "{suffix}"')
    power = int(exponent[1])
    if abs(power) > MAX_EXPONENT:
        raise QuantityError(f"exponent beyond {MAX_EXPONENT}")
    return 0, power, SuffixFamily.EXPONENT


def _canonical(quantity: Quantity) -> str:
    """No fraction, the largest suffix that loses nothing, in the family it was written in."""
    nano = quantity.nano
    if nano == 0:
        return "0"
    if quantity.family is SuffixFamily.BINARY and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        amount = nano // NANO
        suffix, shift = "", 0
        for name, power in _BINARY.items():
            if amount % 2**power:
                break
            suffix, shift = name, power
        return f"{amount >> shift}{suffix}"
    power = -9
    # DecimalSI ends at E (10^18); exponents have no limit. Both go in steps of three.
    while nano % 1000 == 0 and (quantity.family is SuffixFamily.EXPONENT or power < 18):
        nano //= 1000
        power += 3
    if quantity.family is SuffixFamily.EXPONENT:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL_BY_POWER[power]}"


def bytes_text(size: int) -> str:
    """A number of bytes as people write it: `10Gi`."""
    return str(Quantity(size * NANO, SuffixFamily.BINARY))
