"""How much a document may hold, whatever it is written in, and the error that says it holds more."""

import math

from volsched.model.problems import Defect, Path, shown
from volsched.model.quantity import INT64_MAX

BYTES_MAX = 256 * 2**20
DEPTH_MAX = 64
# Longer numbers are no amounts, and Python's conversion of them takes quadratic time.
DIGITS_MAX = 64
# Values that aliases and merge keys may add to a document: a page of YAML can otherwise stand for billions.
REPEATED_MAX = 100_000


class UnfitError(Exception):
    """The document being read cannot be a manifest."""

    def __init__(self, message: str, *, path: Path = (), seen: str = "") -> None:
        super().__init__(message)
        self.defect = Defect(path, message, seen)


def too_deep(path: Path = ()) -> UnfitError:
    return UnfitError(f"is nested more than {DEPTH_MAX} levels deep; no manifest is", path=path[:8])


def whole_number(text: str, base: int = 10) -> int:
    """The integer written in `text`; ValueError where it is none."""
    if len(text) > DIGITS_MAX:
        raise UnfitError(f"is a number of more than {DIGITS_MAX} digits; put it in quotes", seen=shown(text))
    number = int(text, base)
    if abs(number) > INT64_MAX:
        raise UnfitError(
            "is an integer beyond 64 bits, which nothing downstream keeps; put it in quotes", seen=text
        )
    return number


def real_number(text: str) -> float:
    """The float written in `text`; ValueError where it is none."""
    number = float(text)
    if not math.isfinite(number):
        raise UnfitError("is not a finite number; put it in quotes if it is text", seen=shown(text))
    return number


def checked_text(text: str) -> str:
    """Text that can be stored and sent: whole Unicode characters, none of them NUL."""
    if "\0" in text:
        raise UnfitError("contains a NUL character; remove it", seen=shown(text))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnfitError(
                r"contains half of a surrogate pair; write the whole character or both \u escapes",
                seen=shown(text),
            ) from None
    return text
