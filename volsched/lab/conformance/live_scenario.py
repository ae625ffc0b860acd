"""A live scenario: steps over the public API, their outcome on a real control plane, and differences from it."""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from volsched.kube.documents import read_json
from volsched.kube.problems import ManifestError
from volsched.scheduling.rules.reasons import UNBOUND_IMMEDIATE

# A file holds one scenario, as JSON. Steps are lists whose first item names the step; a string `NS` stands for
# the scenario's own namespace. The files of the reference are played unchanged.

NAMESPACE = "NS"
"""A scenario's placeholder for its namespace."""
Json = Mapping[str, Any]
Seconds = Annotated[float, Field(ge=0, le=3600)]
KindName = Literal["pod", "pvc", "pv", "node", "sc", "sts", "csinode", "cap", "csidriver", "ns"]
Apply = tuple[Literal["apply"], list[dict[str, Any]]]
Wait = tuple[Literal["wait"], KindName, str, Literal["node", "bound", "avail", "selected"], Seconds]
Patch = tuple[Literal["patch"], KindName, str, dict[str, Any], str | None]
Delete = tuple[Literal["delete"], KindName, str, int]
Sleep = tuple[Literal["sleep"], Seconds]
Snap = tuple[Literal["snap"], str, Seconds | None]
Step = Apply | Wait | Patch | Delete | Sleep | Snap


class LiveScenarioError(Exception):
    """A file without a valid scenario; the message says where and why."""


class LiveDifference(BaseModel):
    """An intended difference from the reference, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snap: str
    path: str
    reason: str


class LiveScenario(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?$")
    about: str = ""
    hold_seconds: Seconds = 6
    """How long a snapshot waits without a time of its own."""
    steps: list[Step]
    real: dict[str, Any] | None = None
    """The outcome on a real control plane; None: it was not played there yet."""
    differs: list[LiveDifference] = []

    @property
    def namespace(self) -> str:
        """The reference's recordings use `s16` for `16-class-missing`; messages quote it."""
        number = self.name.partition("-")[0]
        return f"s{number}" if number.isdigit() else self.name


@dataclass(frozen=True, slots=True)
class LiveOutcome:
    """The outcome of a scenario on one server."""

    refused: list[list[Any]] = field(default_factory=list)
    waits: list[list[Any]] = field(default_factory=list)
    snaps: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"refused": self.refused, "waits": self.waits, "snaps": self.snaps}


_STEPS: TypeAdapter[Step] = TypeAdapter(Step)


def read_scenario(path: Path) -> LiveScenario:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LiveScenarioError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        # Merge patches remove with null.
        document = read_json(content, source=str(path), nulls=True)
    except ManifestError as error:
        raise LiveScenarioError(str(error)) from None
    if not isinstance(document, dict):
        raise LiveScenarioError(f"{path} holds no scenario: it needs a mapping with name and steps")
    for number, step in enumerate(document.get("steps") or ()):
        _check_step(step, f"{path}: step {number + 1}")
    try:
        return LiveScenario.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LiveScenarioError(f"{path}: {where}: {first['msg']}") from None


def scenario_files(paths: Iterable[Path]) -> list[Path]:
    """Every scenario file that is named, or that is in a named directory."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    return files


def dump_scenario(scenario: LiveScenario) -> str:
    """The text of a file: each object or entry of a snapshot is a line, so that people can read and compare it."""
    parts = scenario.model_dump(mode="json", exclude_defaults=True)
    return _laid_out(parts, depth=0) + "\n"


def _check_step(step: Any, where: str) -> None:
    """Checks the step itself: an error over all six kinds of step would always report five mismatches."""
    try:
        _STEPS.validate_python(step)
    except ValidationError:
        shown = json.dumps(step)[:120]
        raise LiveScenarioError(
            f"{where} is no step: {shown}; write [apply, [objects]], [wait, KIND, NAME, "
            "node|bound|avail|selected, SECONDS], [patch, KIND, NAME, BODY, SUBRESOURCE or null], "
            "[delete, KIND, NAME, GRACE], [sleep, SECONDS] or [snap, LABEL, SECONDS or null]"
        ) from None


LINE = 110
"""Longer values are broken into their parts."""


def _laid_out(value: Any, *, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) + depth <= LINE or _is_manifest(value):
        return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict):
        entries = [f"{json.dumps(key)}: {_laid_out(item, depth=depth + 1)}" for key, item in value.items()]
        return "{" + inner + f",{inner}".join(entries) + outer + "}"
    return "[" + inner + f",{inner}".join(_laid_out(item, depth=depth + 1) for item in value) + outer + "]"


def _is_manifest(value: Any) -> bool:
    return isinstance(value, dict) and "kind" in value and "metadata" in value


# How the outcome of a live scenario differs from that on a real control plane.
#
# Not compared: the suffix about preemption, which does not exist here, and what depends on timing: which of two
# reasons to wait a claim reports, and whether it reports one at all if it is bound by now. If processes race,
# also whether a pod with a node waited for such a claim before. Of a refusal only the first line is compared.

PREEMPTION = re.compile(r"\s*preemption: .*$", re.DOTALL)
ABSENT = "(absent)"
WAITS = frozenset({"WaitForFirstConsumer", "WaitForPodScheduled"})


@dataclass(frozen=True, slots=True)
class Deviation:
    path: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    scenario: LiveScenario
    deviations: tuple[Deviation, ...]
    intended: tuple[Deviation, ...]
    """Deviations for which the scenario gives a reason."""


def judged(scenario: LiveScenario, outcome: LiveOutcome, *, races: bool = False) -> LiveVerdict:
    """`races`: its processes race each other, so a pod may be decided before its claim is bound."""
    reasons = [f"snaps.{it.snap}.{it.path}" for it in scenario.differs]
    told_early = {f"snaps.{label}.events": _placed_pods(look) for label, look in outcome.snaps.items()}
    deviations = [
        Deviation(*found)
        for found in differences(scenario.real, outcome.as_json())
        if not (races and _is_early(found, told_early.get(found[0], ())))
    ]
    intended = [it for it in deviations if any(_within(it.path, path) for path in reasons)]
    return LiveVerdict(scenario, tuple(it for it in deviations if it not in intended), tuple(intended))


def is_expected(scenario: LiveScenario, label: str, look: Mapping[str, Any]) -> bool:
    """Whether this snapshot of racing processes is as expected, apart from intended differences."""
    intended = [it.path for it in scenario.differs if it.snap == label]
    expected, placed = (scenario.real or {}).get("snaps", {}).get(label), _placed_pods(look)
    return all(
        any(_within(found[0], it) for it in intended) or _is_early(found, placed)
        for found in differences(expected, look)
    )


def _placed_pods(look: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, pod in look.get("pods", {}).items() if pod["node"])


def _is_early(difference: tuple[str, Any, Any], placed: Container[str]) -> bool:
    """A pod that has a node by now reported before that one of its claims was not bound."""
    _, expected, got = difference
    if expected != ABSENT or not isinstance(got, list):
        return False
    kind, name, _, reason, message = got
    return (kind, reason) == ("Pod", "FailedScheduling") and name in placed and UNBOUND_IMMEDIATE in message


def _within(path: str, whole: str) -> bool:
    return path == whole or path.startswith(f"{whole}.")


def differences(expected: Any, got: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, expected, got), of two outcomes as `LiveOutcome.as_json` gives them."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted({*expected, *got}):
            at = f"{path}.{key}" if path else key
            if key == "refused":
                yield from differences(_first_lines(expected[key]), _first_lines(got[key]), at)
            elif key == "events":
                bound = {name for look in (expected, got) for name in _bound_claims(look)}
                yield from _event_differences(expected.get(key, ()), got.get(key, ()), at, bound)
            else:
                yield from differences(expected.get(key, ABSENT), got.get(key, ABSENT), at)
    elif _normalized(expected) != _normalized(got):
        yield path, expected, got


def _first_lines(refusals: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """The rest of a refusal is a diff of two objects in the program's own format."""
    return {f"{number}": [*rest, message.partition("\n")[0]] for number, (*rest, message) in enumerate(refusals)}


def _bound_claims(look: Mapping[str, Any]) -> Iterator[str]:
    return (name for name, claim in look.get("pvcs", {}).items() if claim["phase"] == "Bound")


def _event_differences(
    expected: Iterable[Sequence[str]], got: Iterable[Sequence[str]], path: str, bound: Container[str]
) -> Iterator[tuple[str, Any, Any]]:
    wanted, had = (
        {_compared(it) for it in events if not (it[3] in WAITS and it[1] in bound)} for events in (expected, got)
    )
    for event in sorted(wanted - had):
        yield path, list(event), ABSENT
    for event in sorted(had - wanted):
        yield path, ABSENT, list(event)


def _compared(event: Sequence[str]) -> tuple[str, ...]:
    kind, name, severity, reason, message = event
    if reason in WAITS:
        return kind, name, severity, " or ".join(sorted(WAITS)), ""
    return kind, name, severity, reason, _normalized(message)


def _normalized(value: Any) -> Any:
    """Null means absent."""
    return PREEMPTION.sub("", value) if isinstance(value, str) else ABSENT if value is None else value
