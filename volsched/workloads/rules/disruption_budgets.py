"""PodDisruptionBudgets: the number of pods that may be evicted now, and the budget that covers a pod.

Percentages refer to the controllers' desired number of pods, not to the existing pods. If that number is unknown,
no pod may be evicted.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, is_being_deleted, metadata, spec, status
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.kube.workloads import PodDisruptionBudget
from volsched.workloads.rules.ownership import Owner, controller_of

BUDGET = "PodDisruptionBudget"
ALLOWED = "DisruptionAllowed"
SYNC_FAILED = "SyncFailed"

Scale = Callable[[Owner], int | None]
"""A controller's desired number of pods; None: unknown."""


class UncountableError(Exception):
    """The pods of a budget cannot be counted, for this reason."""


def budget_selector(budget: Manifest) -> LabelSelector | None:
    """The budget's selector. None selects no pod, an empty one every pod of the namespace."""
    value = KINDS[BUDGET].read(budget)
    assert isinstance(value, PodDisruptionBudget)
    return value.selector


def is_covered(selector: LabelSelector | None, pod: Manifest) -> bool:
    return selector is not None and label_selector_matches(selector, metadata(pod).get("labels") or {})


def is_healthy(pod: Manifest) -> bool:
    conditions = status(pod).get("conditions") or ()
    return any(it.get("type") == "Ready" and it.get("status") == "True" for it in conditions)


def budget_status(budget: Manifest, pods: Iterable[Manifest], scale: Scale, now: str) -> dict[str, Any]:
    """The status that the budget should have; `pods` are those that it covers."""
    covered = list(pods)
    before, generation = status(budget), int(metadata(budget).get("generation") or 1)
    try:
        expected, desired = _expected(budget, covered, scale)
    except UncountableError as error:
        condition = _condition(
            before, allowed=False, reason=SYNC_FAILED, message=str(error), now=now, generation=generation
        )
        return {**before, "disruptionsAllowed": 0, "observedGeneration": generation, "conditions": condition}
    healthy = sum(1 for pod in covered if is_healthy(pod) and not is_being_deleted(pod))
    counts = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
        "expectedPods": expected,
        "observedGeneration": generation,
    }
    return with_condition({**counts, "conditions": before.get("conditions") or []}, now)


def with_condition(before: Manifest, now: str) -> dict[str, Any]:
    """A budget's status with the condition for its number of allowed disruptions."""
    allowed = int(before.get("disruptionsAllowed") or 0) > 0
    generation = int(before.get("observedGeneration") or 0)
    reason = "SufficientPods" if allowed else "InsufficientPods"
    return {
        **before,
        "conditions": _condition(
            before, allowed=allowed, reason=reason, message="", now=now, generation=generation
        ),
    }


def _expected(budget: Manifest, pods: list[Manifest], scale: Scale) -> tuple[int, int]:
    """The expected number of pods, and how many of them must be healthy."""
    least, most = spec(budget).get("minAvailable"), spec(budget).get("maxUnavailable")
    if most is not None:
        expected = _expected_pods(pods, scale)
        return expected, max(expected - _scaled(most, expected), 0)
    if isinstance(least, str):
        expected = _expected_pods(pods, scale)
        return expected, _scaled(least, expected)
    return (len(pods), int(least)) if least is not None else (0, 0)


def _expected_pods(pods: Iterable[Manifest], scale: Scale) -> int:
    scales: dict[str, int] = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None or owner.uid in scales:
            continue
        wanted = scale(owner)
        if wanted is None:
            raise UncountableError(f'found no controllers for pod "{metadata(pod).get("name")}"')
        scales[owner.uid] = wanted
    return sum(scales.values())


def _scaled(amount: int | str, of: int) -> int:
    return ceil(Fraction(amount.rstrip("%") or 0) * of / 100) if isinstance(amount, str) else amount


def _condition(
    status_before: Manifest, *, allowed: bool, reason: str, message: str, now: str, generation: int
) -> list[Mapping[str, Any]]:
    known = [it for it in status_before.get("conditions") or () if isinstance(it, dict)]
    before = next((it for it in known if it.get("type") == ALLOWED), {})
    word = "True" if allowed else "False"
    same = before.get("status") == word
    condition = {
        "type": ALLOWED,
        "status": word,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }
    return [*(it for it in known if it.get("type") != ALLOWED), condition]
