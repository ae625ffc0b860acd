"""Defects of a manifest or document, with place and remedy; and the size limits of documents."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from volsched.kube.quantity import INT64_MAX
from volsched.kube.validation.field_errors import FieldError

# A Defect knows its field but not its object, so that one check serves a claim, a pod's claim template and a
# StatefulSet's alike. A Problem is a defect with its place, as shown to the user.

Path = tuple[str | int, ...]

SHOWN_MAX = 80
# A message may quote the input; this keeps a megabyte of label from becoming a megabyte of error.
MESSAGE_MAX = 600


def value_text(value: Any) -> str:
    """A value as errors show it: JSON, shortened, on one line; a non-empty collection only by its type."""
    if isinstance(value, dict | list | tuple) and value:
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        value = shortened(value, SHOWN_MAX)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def field_name(path: Path) -> str:
    """`spec.accessModes[0]`, `metadata.labels["example.com/tier"]`."""
    name = ""
    for step in path:
        if isinstance(step, int):
            name += f"[{step}]"
        elif step.replace("-", "").replace("_", "").isalnum() and step.isascii():
            name += f".{step}" if name else step
        else:
            name += f"[{value_text(step)}]"
    return name


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect of one field; the message continues the sentence after the value, or after the field's name."""

    path: Path
    message: str
    excerpt: str = ""
    aside: str = ""
    """A further part of the message; of many problems that share it, only one shows it."""

    @property
    def field(self) -> str:
        return field_name(self.path)

    def __str__(self) -> str:
        sentence = f"{self.excerpt} {self.message}" if self.excerpt else self.message
        sentence += f"; {self.aside}" if self.aside else ""
        return _one_line(f"{self.field}: {sentence}" if self.path else sentence)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object was read: document and items count from 1; document 0 is the input as a whole."""

    source: str
    document: int = 0
    items: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [self.source, f"document {self.document}"] if self.document else [self.source]
        return ": ".join([*parts, *(f"item {number}" for number in self.items)])


@dataclass(frozen=True, slots=True)
class Problem:
    place: Place
    subject: str
    defect: Defect | FieldError

    def __str__(self) -> str:
        parts = (str(self.place), _one_line(self.subject), _one_line(str(self.defect)))
        return ": ".join(part for part in parts if part)


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    """One line per problem; an aside that several share is printed with the first."""
    mentioned: set[str] = set()
    lines = []
    for problem in problems:
        defect = problem.defect
        if isinstance(defect, Defect) and defect.aside in mentioned:
            problem = replace(problem, defect=replace(defect, aside=""))
        lines.append(str(problem))
        mentioned |= {defect.aside} if isinstance(defect, Defect) else set()
    return lines


class ManifestError(Exception):
    """The input was refused; `problems` holds every reason, in the order of the input, and is never empty.

    `unreadable`: the bytes are not YAML or JSON of a manifest, so nothing else is known about them. Otherwise the
    documents were read, but objects in them are wrong.
    """

    def __init__(self, problems: Sequence[Problem], *, unreadable: bool = False) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)
        self.unreadable = unreadable

    def __str__(self) -> str:
        return "\n".join(problem_lines(self.problems))


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _one_line(text: str) -> str:
    text = shortened(text, MESSAGE_MAX)
    if text.isprintable():
        return text
    escaped = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
    return shortened(escaped, MESSAGE_MAX)


class ConfigurationError(Exception):
    """A configuration or a setting cannot be used: every mistake, with its field and the remedy.

    It is defined here because a process that only reads the store's URL does not load the configuration's rules.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


# Size limits of documents in any format, and the error for exceeding them.

BYTES_MAX = 256 * 2**20
DEPTH_MAX = 64
# Longer numbers are not quantities, and Python's conversion of them takes quadratic time.
DIGITS_MAX = 64
# Values that aliases and merge keys may add to a document: otherwise a page of YAML can stand for billions.
REPEATED_MAX = 100_000
ITEMS_MAX = 2**15
"""Items of a list, or keys of a mapping, in one object: far beyond what any controller writes."""
OBJECT_BYTES_MAX = 3 * 2**19
"""The largest stored object, as JSON: etcd's limit of a request, 1.5 MiB."""
_HOLDERS = (dict, list)


class UnfitError(Exception):
    """The document being read cannot be a manifest."""

    def __init__(self, message: str, *, path: Path = (), excerpt: str = "") -> None:
        super().__init__(message)
        self.defect = Defect(path, message, excerpt)


def too_deep(path: Path = ()) -> UnfitError:
    return UnfitError(f"is nested more than {DEPTH_MAX} levels deep; no manifest is", path=path[:8])


def is_deeper(value: Any, most: int) -> bool:
    """Whether a value is nested deeper than `most`; goes by level, because even a large dump has few levels."""
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
    """Whether it holds more than `most` values; stops counting there."""
    waiting, known = [value], 1
    while waiting and known <= most:
        holder = waiting.pop()
        if isinstance(holder, _HOLDERS):
            known += len(holder)
            if known <= most:
                waiting += holder.values() if isinstance(holder, dict) else holder
    return known > most


def longest(value: Any) -> int:
    """The number of items of the longest list or mapping."""
    most, waiting = 0, [value] if isinstance(value, _HOLDERS) else []
    while waiting:
        holder = waiting.pop()
        most = max(most, len(holder))
        inner = holder.values() if isinstance(holder, dict) else holder
        waiting += [item for item in inner if isinstance(item, _HOLDERS)]
    return most


def excess(manifest: Any, before: Any = None) -> str | None:
    """The limit that an object would exceed, for every writer: all readers must be able to read stored objects.

    An object that exceeded a limit before may still shrink.
    """
    if is_deeper(manifest, DEPTH_MAX):
        return (
            None
            if is_deeper(before, DEPTH_MAX)
            else f"is nested more than {DEPTH_MAX} levels deep; no manifest is"
        )
    size = json_bytes(manifest)
    if size <= 2 * ITEMS_MAX:
        # Every item takes at least two bytes, so no list can be too long either.
        return None
    if size > OBJECT_BYTES_MAX and size > json_bytes(before):
        return f"is {size} bytes long; at most {OBJECT_BYTES_MAX} are kept"
    most = longest(manifest)
    if most > ITEMS_MAX and most > longest(before):
        return f"holds a list or mapping of {most} items; at most {ITEMS_MAX} are kept"
    return None


def json_bytes(value: Any) -> int:
    """The length of a value as JSON; 0 where it cannot be serialised, which other checks report."""
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return 0


def whole_number(text: str, base: int = 10) -> int:
    """The integer written in `text`; ValueError where it is none."""
    if len(text) > DIGITS_MAX:
        raise UnfitError(
            f"is a number of more than {DIGITS_MAX} digits; put it in quotes", excerpt=value_text(text)
        )
    number = int(text, base)
    if abs(number) > INT64_MAX:
        raise UnfitError("is an integer beyond 64 bits, which cannot be stored; put it in quotes", excerpt=text)
    return number


def real_number(text: str) -> float:
    """The float written in `text`; ValueError where it is none."""
    number = float(text)
    if not math.isfinite(number):
        raise UnfitError("is not a finite number; put it in quotes if it is text", excerpt=value_text(text))
    return number


def checked_text(text: str) -> str:
    """Text that can be stored and sent: whole Unicode characters, none of them NUL."""
    if "\0" in text:
        raise UnfitError("contains a NUL character; remove it", excerpt=value_text(text))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnfitError(
                r"contains half of a surrogate pair; write the whole character or both \u escapes",
                excerpt=value_text(text),
            ) from None
    return text
