"""Golden vectors: small clusters with the answers of the reference's own code, run under `parity`.

There are vectors of the volume binder (`conformance_binder`) and of the PV controller (`conformance_controller`).
Input is used exactly as written: no defaults, no validation. What is compared is compared in every field.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from volsched.lab.conformance.binder import binder_answer
from volsched.lab.conformance.controller import controller_answer, controller_expectation

PANIC = "scorePanic"
ABSENT = "(absent)"

Json = Mapping[str, Any]


class VectorError(Exception):
    """The file does not hold vectors that can be run; says which line and why."""


@dataclass(frozen=True, slots=True)
class Vector:
    id: str
    category: str
    input: Json
    expected: Json

    @property
    def of_binder(self) -> bool:
        return "pod" in self.input

    @property
    def of_controller(self) -> bool:
        return "mode" in self.input


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which an answer is not the reference's."""

    path: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class VectorOutcome:
    vector: Vector
    differences: tuple[Difference, ...]

    @property
    def failed(self) -> bool:
        return bool(self.differences)

    @property
    def skipped(self) -> bool:
        """The reference crashed on a part of it, so not all could be compared."""
        return not self.differences and PANIC in json.dumps(self.vector.expected)


def read_vectors(lines: Iterable[bytes]) -> Iterator[Vector]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
            vector = Vector(str(case["id"]), str(case["category"]), case["input"], case["expected"])
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise VectorError(
                f"line {number} is not a vector ({error!r}); expected one JSON object with id, category, input "
                "and expected"
            ) from None
        if not (isinstance(vector.input, dict) and isinstance(vector.expected, dict)):
            raise VectorError(f"line {number} ({vector.id}) is not a vector: input and expected must be objects")
        if not (vector.of_binder or vector.of_controller):
            raise VectorError(
                f"line {number} ({vector.id}) is a vector neither of the volume binder, whose input has a pod, "
                "nor of the PV controller, whose input has a mode; other kinds cannot be run yet"
            )
        yield vector


def run_vector(vector: Vector) -> VectorOutcome:
    """A vector whose input cannot be read is a failure of its own, not of the run."""
    try:
        expected, got = _judged(vector)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return VectorOutcome(
            vector, (Difference("input", "objects", f"{error.title} at {place}: {first['msg']}"),)
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return VectorOutcome(vector, (Difference("input", "objects", repr(error)),))
    return VectorOutcome(vector, tuple(_differences(expected, got)))


def _judged(vector: Vector) -> tuple[Json, Json]:
    """What is expected and what was answered, each reduced to what must be equal."""
    case = _without_nulls(vector.input)
    if vector.of_binder:
        return vector.expected, binder_answer(case)
    return controller_expectation(vector.expected), controller_answer(case)


def _without_nulls(value: Any) -> Any:
    """An explicit null in an object is an absent field, as for any Kubernetes client."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _differences(expected: Any, got: Any, path: str = "") -> Iterator[Difference]:
    """Every leaf that differs; lists of different length differ as a whole."""
    if isinstance(expected, dict) and isinstance(got, dict):
        crashed = PANIC in expected
        for key in sorted(expected.keys() | got.keys()):
            if key != PANIC and not (crashed and key == "score"):
                yield from _differences(
                    expected.get(key, ABSENT), got.get(key, ABSENT), f"{path}.{key}".lstrip(".")
                )
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, pair in enumerate(zip(expected, got, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif expected != got:
        yield Difference(path, expected, got)
