"""What is wrong with a manifest, where it stands and what to do about it.

A Defect knows its field but not its object, so that one check serves a claim, a pod's claim template and a
StatefulSet's alike. A Problem is a defect with the place it was met at, which is what a user reads.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]

SHOWN_MAX = 80
# A message may quote what the user wrote; this keeps a megabyte of label from becoming a megabyte of error.
MESSAGE_MAX = 600


def shown(value: Any) -> str:
    """A value as an error names it: JSON, shortened, on one line; a filled collection only by what it is."""
    if isinstance(value, dict | list | tuple) and value:
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        value = _shortened(value, SHOWN_MAX)
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
            name += f"[{shown(step)}]"
    return name


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing wrong with one field; the message reads on from the value seen, or from the field's name."""

    path: Path
    message: str
    seen: str = ""

    @property
    def field(self) -> str:
        return field_name(self.path)

    def below(self, prefix: Path) -> "Defect":
        """The same defect, seen from an object that holds this one at `prefix`."""
        return Defect((*prefix, *self.path), self.message, self.seen)

    def __str__(self) -> str:
        sentence = f"{self.seen} {self.message}" if self.seen else self.message
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
    defect: Defect

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), _one_line(self.subject), str(self.defect)) if part)


class ManifestError(Exception):
    """The input was refused; `problems` holds every reason, in the order of the input, and is never empty.

    `unreadable`: the bytes are not YAML or JSON that a manifest can be written in, so nothing else is known about
    them. Otherwise the documents were read, but objects in them are wrong.
    """

    def __init__(self, problems: Sequence[Problem], *, unreadable: bool = False) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)
        self.unreadable = unreadable

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _one_line(text: str) -> str:
    text = _shortened(text, MESSAGE_MAX)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


class ConfigurationError(Exception):
    """A configuration or a setting cannot be used: every mistake, with its field and the remedy.

    It stands here, not beside the rules of a configuration: who only reads where the store is needs no rules.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
