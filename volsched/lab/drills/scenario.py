"""A scenario: a drill as a small file that people write, with what is broken, how often, and where.

```yaml
name: sleepers
kind: sim
about: workers sleep past their leases while everybody else goes on
seeds: 1..500
where: [foreign]
chances: {sleep: 0.4, crash: 0, wait: 0.25}
length: 60
```
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from volsched.lab.simulation.generator import Temper
from volsched.lab.simulation.schedule import PLACES, Where

SIM, STACK = KINDS = ("sim", "stack")
"""Stepped in one thread, or real processes that are killed."""
CHANCES = tuple(it.name for it in fields(Temper) if it.type is float)
KNOWN = ("name", "kind", "about", "seeds", "where", "chances", "length", "with")


class ScenarioError(ValueError):
    """A scenario that cannot be played; the message names the field and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillScenario:
    name: str
    kind: str = SIM
    about: str = ""
    seeds: tuple[int, int] = (1, 100)
    where: tuple[Where, ...] = PLACES
    chances: Mapping[str, float] = field(default_factory=dict)
    length: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """`with`: what only drills of its kind understand, such as the moment of a kill."""

    @property
    def temper(self) -> Temper | None:
        """None: every seed has its own."""
        if not self.chances and self.length is None and self.where == PLACES:
            return None
        length = {} if self.length is None else {"length": self.length}
        return Temper(where=self.where, **self.chances, **length)  # type: ignore[arg-type]  # names are checked


def read_seeds(text: str) -> tuple[int, int]:
    """`7` or `1..250`."""
    first, _, last = text.partition("..")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise ScenarioError(f'seeds: "{text}" is no range; write 1..250, or one number')
    return int(first), int(last or first)


def read_scenario(path: Path) -> DrillScenario:
    try:
        given = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ScenarioError(f"{path}: it cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScenarioError(f"{path}: it is no YAML: {' '.join(str(error).split())}") from None
    try:
        return _scenario(given, path.stem)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _scenario(given: object, name: str) -> DrillScenario:
    if not isinstance(given, dict):
        raise ScenarioError("a scenario is a mapping of name, kind, about, seeds, where, chances, length")
    unknown = sorted(str(it) for it in given.keys() - set(KNOWN))
    if unknown:
        raise ScenarioError(f"{unknown[0]} is unknown; there are {', '.join(KNOWN)}")
    kind = given.get("kind", SIM)
    if kind not in KINDS:
        raise ScenarioError(f'kind: "{kind}" is unknown; there are {" and ".join(KINDS)}')
    where = given.get("where", list(PLACES))
    where = [where] if isinstance(where, str) else where
    if not isinstance(where, list) or not where or not set(where) <= set(PLACES):
        raise ScenarioError(f"where: it must be one or both of {' and '.join(PLACES)}")
    length = given.get("length")
    if length is not None and (not isinstance(length, int) or not 1 <= length <= 10_000):
        raise ScenarioError("length: it must be a number of choices, from 1 to 10000")
    settings = given.get("with", {})
    if not isinstance(settings, dict):
        raise ScenarioError("with: it must be a mapping")
    other, others = (SIM, ("where", "chances", "length")) if kind == STACK else (STACK, ("with",))
    for key in others:
        if key in given:
            raise ScenarioError(f"{key} is for drills of kind {other}; this one is of kind {kind}")
    return DrillScenario(
        name=str(given.get("name", name)),
        kind=kind,
        about=str(given.get("about", "")),
        seeds=read_seeds(str(given.get("seeds", "1..100"))),
        where=tuple(where),
        chances=_chances(given.get("chances", {})),
        length=length,
        settings=settings,
    )


def _chances(given: object) -> dict[str, float]:
    if not isinstance(given, dict):
        raise ScenarioError(f"chances: it must be a mapping of {', '.join(CHANCES)}")
    for name, chance in given.items():
        if name not in CHANCES:
            raise ScenarioError(f"chances.{name} is unknown; there are {', '.join(CHANCES)}")
        if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
            raise ScenarioError(f"chances.{name}: it must be a number from 0 to 1")
    return {str(name): float(chance) for name, chance in given.items()}
