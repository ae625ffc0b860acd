"""A scenario: a drill as a small file that users write; and the list of drills."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml

from volsched.lab.faults import CHANCES
from volsched.lab.simulation.schedule import PLACES, Where
from volsched.lab.simulation.seeds import Temper

# ```yaml
# name: sleepers
# kind: sim
# about: workers sleep past their leases while all others go on
# seeds: 1..500
# where: [foreign]
# chances: {sleep: 0.4, crash: 0, wait: 0.25}
# length: 60
# ```

SIM, STACK, ATTACHED = KINDS = ("sim", "stack", "attached")
"""Kinds: stepped in one thread; real processes that are killed; an attached process on a foreign cluster."""
KIND_NAMES = {SIM: "simulation", STACK: "processes", ATTACHED: "foreign cluster"}
Word = TypeVar("Word", bound=str)
KNOWN = ("name", "kind", "about", "seeds", "where", "chances", "length", "with")


class ScenarioError(ValueError):
    """A scenario that cannot be played; the message names the field and its valid values."""


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
    """`with`: settings for drills of its kind only, such as the moment of a kill."""

    @property
    def temper(self) -> Temper | None:
        """The probabilities of faults; None: every seed has its own."""
        if not self.chances and self.length is None and self.where == PLACES:
            return None
        usual = Temper(where=self.where, chances=self.chances)
        return usual if self.length is None else replace(usual, length=self.length)


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


def some_of(known: tuple[Word, ...], given: object, name: str) -> tuple[Word, ...]:
    """One of the known words, or a list of them."""
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not words or not all(word in known for word in words):
        raise ScenarioError(f"{name}: it must be one or both of {' and '.join(known)}")
    return tuple(words)


def _scenario(given: object, name: str) -> DrillScenario:
    if not isinstance(given, dict):
        raise ScenarioError("a scenario is a mapping of name, kind, about, seeds, where, chances, length")
    unknown = sorted(str(it) for it in given.keys() - set(KNOWN))
    if unknown:
        raise ScenarioError(f"{unknown[0]} is unknown; there are {', '.join(KNOWN)}")
    kind = given.get("kind", SIM)
    if kind not in KINDS:
        raise ScenarioError(f'kind: "{kind}" is unknown; there are {", ".join(KINDS)}')
    where = some_of(PLACES, given.get("where", list(PLACES)), "where")
    length = given.get("length")
    if length is not None and (not isinstance(length, int) or not 1 <= length <= 10_000):
        raise ScenarioError("length: it must be a number of choices, from 1 to 10000")
    settings = given.get("with", {})
    if not isinstance(settings, dict):
        raise ScenarioError("with: it must be a mapping")
    other, others = (STACK, ("with",)) if kind == SIM else (SIM, ("where", "chances", "length"))
    for key in others:
        if key in given:
            raise ScenarioError(f"{key} is for drills of kind {other}; this one is of kind {kind}")
    return DrillScenario(
        name=str(given.get("name", name)),
        kind=kind,
        about=str(given.get("about", "")),
        seeds=read_seeds(str(given.get("seeds", "1..100"))),
        where=where,
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


# The drills, one line each; a scenario file adds another.

SCENARIOS: Mapping[str, DrillScenario] = {
    it.name: it
    for it in (
        DrillScenario(
            name="sim",
            about="the system stepped from a seed: crashes, sleeps, lost messages, foreign writers, bad clocks",
        ),
        DrillScenario(
            name="sim-crashes",
            about="like sim, and processes crash soon after nearly every third step",
            chances={"crash": 0.3, "others": 0.05},
        ),
        DrillScenario(
            name="sim-sleepers",
            about="like sim, and workers sleep past their leases and then continue",
            chances={"sleep": 0.2, "crash": 0.02, "wait": 0.2},
        ),
        DrillScenario(
            name="sim-foreign",
            about="like sim, on a foreign cluster over a connection that loses, delays and refuses calls",
            where=("foreign",),
            chances={"call": 0.4, "watch": 0.4},
        ),
        DrillScenario(
            name="sim-crowd",
            about="like sim, and users, administrators and thieves write at one choice in three",
            chances={"others": 0.33, "crash": 0.05},
        ),
        DrillScenario(
            name="sim-slow",
            about="like sim, and provisioners are slow while all others do not wait",
            chances={"slow": 0.95, "others": 0.35, "crash": 0.03, "sleep": 0.03},
        ),
        DrillScenario(
            name="sim-storage",
            about="like sim, and storage refuses, hangs, raises and delivers too little",
            where=("local",),
            chances={"storage": 0.15},
        ),
        DrillScenario(
            name="sim-refusals",
            about="like sim, and there is always a node that every rule accepts and a provisioner refuses",
            where=("local",),
            chances={"misfit": 1, "storage": 0.1},
        ),
        DrillScenario(
            name="sim-clocks",
            about="like sim, and clocks jump by up to a year either way, often just before a crash",
            chances={"skew": 0.25, "crash": 0.1, "wait": 0.15},
        ),
        DrillScenario(
            name="sim-attached",
            about="like sim, and a node attaches one disk, whatever is in flight",
            where=("local",),
            chances={"attached": 1.0, "others": 0.03},
        ),
    )
}
BESIDE: Mapping[str, str] = {
    "replay": "decide recorded requests again under another profile or configuration, and compare "
    "(volsched drill replay)",
    "rehearse": "run recovery on a copy of a store, and report what it would do and how long it takes "
    "(volsched drill rehearse)",
}
"""Drills that are separate commands."""


FILES = Path(__file__).parent / "scenarios"
"""The scenario files of drills with real processes."""


def process_drills(kind: str = STACK) -> list[DrillScenario]:
    read = [read_scenario(path) for path in sorted(FILES.glob("*.yaml"))]
    return [it for it in read if it.kind == kind]


def scenario_named(name: str) -> DrillScenario:
    """A built-in scenario, or one from a file."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name in {path.stem for path in FILES.glob("*.yaml")}:
        return read_scenario(FILES / f"{name}.yaml")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return read_scenario(path)
    if name in BESIDE:
        raise ScenarioError(f'"{name}" is a command of its own: volsched drill {name} --help')
    near = get_close_matches(name, [it for it, _, _ in described()], 2)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ScenarioError(
        f'there is no drill "{name}"{meant or ";"} volsched drill list shows them, or give a scenario FILE.yaml'
    )


def described() -> list[tuple[str, str, str]]:
    """Name, kind and description of every drill."""
    played = [*SCENARIOS.values(), *process_drills(), *process_drills(ATTACHED)]
    rows = [(it.name, KIND_NAMES[it.kind], it.about) for it in played]
    return [*rows, *((name, "on your store", about) for name, about in BESIDE.items())]
