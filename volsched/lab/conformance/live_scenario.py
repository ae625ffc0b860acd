"""A live scenario: steps over the public API of a cluster, and how a real control plane ended them.

A file holds one scenario, as JSON. Steps are lists whose first item names the step; `NS` stands for the
scenario's own namespace wherever a string is just that. The files of the reference are played as they are.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from volsched.kube.documents import read_json
from volsched.kube.problems import ManifestError

NAMESPACE = "NS"
"""What a scenario writes where its namespace belongs."""
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
    """A file that holds no scenario that can be played; says where and why."""


class LiveDifference(BaseModel):
    """Where we mean to differ from the reference, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snap: str
    path: str
    reason: str


class LiveScenario(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?$")
    about: str = ""
    hold_seconds: Seconds = 6
    """How long a look waits that does not say it itself."""
    steps: list[Step]
    real: dict[str, Any] | None = None
    """The outcome on a real control plane; None: it was not played there yet."""
    differs: list[LiveDifference] = []

    @property
    def namespace(self) -> str:
        """The reference's recordings are in `s16` for `16-class-missing`; texts quote it."""
        number = self.name.partition("-")[0]
        return f"s{number}" if number.isdigit() else self.name


@dataclass(frozen=True, slots=True)
class LiveOutcome:
    """What came of a scenario on one server."""

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
    """Every scenario file that is named, or that lies in a directory that is named."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    return files


def dump_scenario(scenario: LiveScenario) -> str:
    """As a file: an object or a snapshot's entry is a line, so that people can read and compare it."""
    parts = scenario.model_dump(mode="json", exclude_defaults=True)
    return _laid_out(parts, depth=0) + "\n"


def _check_step(step: Any, where: str) -> None:
    """Said of the step itself: of six kinds of step, five always have something against it."""
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
"""What is longer is broken into its parts."""


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
