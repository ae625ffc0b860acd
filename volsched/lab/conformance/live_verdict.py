"""In what the outcome of a live scenario differs from the one on a real control plane.

Not compared is the tail about preemption, which does not exist here, and what depends on who looks first: which of
two reasons to wait a claim was told, and whether it was told to wait at all where it is bound by now. Where
processes race, neither is whether a pod that has its node was told before to wait for such a claim. Of a refusal
the first line is compared.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volsched.lab.conformance.live_scenario import LiveOutcome, LiveScenario

PREEMPTION = re.compile(r"\s*preemption: .*$", re.DOTALL)
ABSENT = "(absent)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
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


def judged(scenario: LiveScenario, outcome: LiveOutcome, *, races: bool = False) -> LiveVerdict:
    """`races`: its processes race each other, so a pod may be looked at before its claim was bound."""
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
    """Whether this look at processes that race shows what is expected, but for what we mean to differ in."""
    intended = [it.path for it in scenario.differs if it.snap == label]
    expected, placed = (scenario.real or {}).get("snaps", {}).get(label), _placed_pods(look)
    return all(
        any(_within(found[0], it) for it in intended) or _is_early(found, placed)
        for found in differences(expected, look)
    )


def _placed_pods(look: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, pod in look.get("pods", {}).items() if pod["node"])


def _is_early(found: tuple[str, Any, Any], placed: Container[str]) -> bool:
    """A pod that has its node was told before that a claim of it is not bound yet."""
    _, expected, got = found
    if expected != ABSENT or not isinstance(got, list):
        return False
    kind, name, _, reason, message = got
    return (kind, reason) == ("Pod", "FailedScheduling") and name in placed and UNBOUND in message


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
