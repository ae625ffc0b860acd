"""In what the outcome of a live scenario differs from the one on a real control plane.

Not compared is the tail about preemption, which does not exist here, and what depends on who looks first: which of
two reasons to wait a claim was told, and whether it was told to wait at all where it is bound by now. Of a refusal
the first line is compared.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.lab.conformance.live_scenario import LiveOutcome, LiveScenario

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
    """Those that the scenario gives a reason for."""


def judged(scenario: LiveScenario, outcome: LiveOutcome) -> LiveVerdict:
    reasons = [f"snaps.{it.snap}.{it.path}" for it in scenario.differs]
    deviations = [Deviation(*found) for found in differences(scenario.real, outcome.as_json())]
    intended = [it for it in deviations if any(_within(it.path, path) for path in reasons)]
    return LiveVerdict(scenario, tuple(it for it in deviations if it not in intended), tuple(intended))


def is_expected(scenario: LiveScenario, label: str, look: Mapping[str, Any]) -> bool:
    """Whether this look shows what the real control plane showed, but for what we mean to differ in."""
    intended = [it.path for it in scenario.differs if it.snap == label]
    expected = (scenario.real or {}).get("snaps", {}).get(label)
    return all(any(_within(path, it) for it in intended) for path, _, _ in differences(expected, look))


def _within(path: str, whole: str) -> bool:
    return path == whole or path.startswith(f"{whole}.")


def differences(expected: Any, got: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, expected, got), of two outcomes as `Outcome.as_json` gives them."""
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
    elif _told(expected) != _told(got):
        yield path, expected, got


def _first_lines(refusals: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """What follows in a refusal is a difference of two objects as its program prints it."""
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
    return kind, name, severity, reason, _told(message)


def _told(value: Any) -> Any:
    """What is null is not there."""
    return PREEMPTION.sub("", value) if isinstance(value, str) else ABSENT if value is None else value
