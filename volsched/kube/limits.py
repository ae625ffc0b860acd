"""How much a document may hold, whatever it is written in, and the error that says it holds more."""

import math
from typing import Any

import orjson

from volsched.kube.problems import Defect, Path, shown
from volsched.kube.quantity import INT64_MAX

BYTES_MAX = 256 * 2**20
DEPTH_MAX = 64
# Longer numbers are no amounts, and Python's conversion of them takes quadratic time.
DIGITS_MAX = 64
# Values that aliases and merge keys may add to a document: a page of YAML can otherwise stand for billions.
REPEATED_MAX = 100_000
ITEMS_MAX = 2**15
"""Items of a list, or keys of a mapping, in one object: far beyond what any controller writes."""
OBJECT_BYTES_MAX = 3 * 2**19
"""Of one stored object, as JSON: what etcd takes in a request, 1.5 MiB."""
_HOLDERS = (dict, list)


class UnfitError(Exception):
    """The document being read cannot be a manifest."""

    def __init__(self, message: str, *, path: Path = (), seen: str = "") -> None:
        super().__init__(message)
        self.defect = Defect(path, message, seen)


def too_deep(path: Path = ()) -> UnfitError:
    return UnfitError(f"is nested more than {DEPTH_MAX} levels deep; no manifest is", path=path[:8])


def is_deeper(value: Any, most: int) -> bool:
    """Level by level, because a whole dump passes through here and its levels are few."""
    level = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(most):
        level = [
            inner
            for holder in level
            for inner in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(inner, _HOLDERS)
        ]
        if not level:
            return False
    return bool(level)


def holds_more(value: Any, most: int) -> bool:
    """More values than that, looking at no more of them than it takes to know."""
    waiting, known = [value], 1
    while waiting and known <= most:
        holder = waiting.pop()
        if isinstance(holder, _HOLDERS):
            known += len(holder)
            if known <= most:
                waiting += holder.values() if isinstance(holder, dict) else holder
    return known > most


def longest(value: Any) -> int:
    """How many items the longest list or mapping holds."""
    most, waiting = 0, [value] if isinstance(value, _HOLDERS) else []
    while waiting:
        holder = waiting.pop()
        most = max(most, len(holder))
        inner = holder.values() if isinstance(holder, dict) else holder
        waiting += [item for item in inner if isinstance(item, _HOLDERS)]
    return most


def excess(manifest: Any, before: Any = None) -> str | None:
    """What an object would hold too much of, whoever writes it: what is stored, every reader must be able to read.

    What it held before is no reason to refuse that it becomes less.
    """
    if is_deeper(manifest, DEPTH_MAX):
        return (
            None
            if is_deeper(before, DEPTH_MAX)
            else f"is nested more than {DEPTH_MAX} levels deep; no manifest is"
        )
    size = json_bytes(manifest)
    if size <= 2 * ITEMS_MAX:
        # Every item takes two bytes at least, so that no list can be too long either.
        return None
    if size > OBJECT_BYTES_MAX and size > json_bytes(before):
        return f"is {size} bytes long; at most {OBJECT_BYTES_MAX} are kept"
    most = longest(manifest)
    if most > ITEMS_MAX and most > longest(before):
        return f"holds a list or mapping of {most} items; at most {ITEMS_MAX} are kept"
    return None


def json_bytes(value: Any) -> int:
    """How long a value is as JSON; 0 where it cannot be written as such, which others say."""
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return 0


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
