"""The eviction of a pod: it is deleted, unless a PodDisruptionBudget forbids it.

Pod and budget are written in one transaction, so no reader ever sees a budget that still counts a deleted pod, and
the list of disrupted pods that Kubernetes keeps in the budget is not needed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, is_being_deleted, metadata, spec, status
from volsched.kube.patches import merged
from volsched.log.commands import RejectedError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.objects.rules.lifecycle import delete_object
from volsched.objects.rules.object_events import ObjectError, changed_event, is_deletion
from volsched.workloads.rules.disruption_budgets import (
    ALLOWED,
    SYNC_FAILED,
    budget_selector,
    is_covered,
    is_healthy,
    with_condition,
)

BUSY_SECONDS = 10
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
UNGUARDED = ("Succeeded", "Failed", "Pending")
"""Phases in which a pod serves no clients: deleting it disrupts nothing."""


class DisruptionError(RejectedError):
    """A budget does not allow the eviction now; it may later."""

    code = 429

    def __init__(self, why: str, seconds: int = 0) -> None:
        super().__init__(REFUSED)
        self.why, self.seconds = why, seconds


class SeveralBudgetsError(ObjectError):
    def __init__(self) -> None:
        super().__init__(SEVERAL)


def evict_pod(
    pod: State | None,
    key: str,
    budgets: Mapping[str, State | None],
    *,
    now: str,
    uid: str | None = None,
    rv: str | None = None,
    grace: int | None = None,
) -> tuple[NewEvent | None, tuple[NewEvent, ...]]:
    """The pod's event, and the event of the budget that it counts for. `budgets` are those of its namespace."""
    deletion = delete_object(pod, KINDS["Pod"], key, now=now, uid=uid, rv=rv, grace=grace)
    assert isinstance(pod, ObjectState)
    manifest = pod.manifest or {}
    charged = _charged(manifest, budgets, now)
    if deletion is not None and is_deletion(deletion):
        return deletion, charged
    told = {"status": {"conditions": _conditions(manifest, now)}}
    patch = merged(deletion.data["patch"], told) if deletion is not None else told
    return changed_event(f"pod/{key}", patch), charged


def _charged(pod: Manifest, budgets: Mapping[str, State | None], now: str) -> tuple[NewEvent, ...]:
    if status(pod).get("phase") in UNGUARDED or is_being_deleted(pod):
        return ()
    covering = [
        (stream, budget) for stream, budget in _living(budgets) if is_covered(budget_selector(budget), pod)
    ]
    if not covering:
        return ()
    if len(covering) > 1:
        raise SeveralBudgetsError
    stream, budget = covering[0]
    if not is_healthy(pod) and _spares_unhealthy(budget):
        return ()
    before = status(budget)
    _refuse(budget, before)
    left = {**before, "disruptionsAllowed": int(before["disruptionsAllowed"]) - 1}
    # The caller evicts the pod; the change of the budget is a consequence.
    return (replace(changed_event(stream, {"status": with_condition(left, now)}), is_consequence=True),)


def _living(budgets: Mapping[str, State | None]) -> Iterable[tuple[str, Manifest]]:
    for stream, state in budgets.items():
        if isinstance(state, ObjectState) and state.manifest is not None:
            yield stream, state.manifest


def _spares_unhealthy(budget: Manifest) -> bool:
    """Whether an unready pod may be evicted although no disruption is allowed: it does not count as healthy."""
    if spec(budget).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = (int(status(budget).get(name) or 0) for name in ("currentHealthy", "desiredHealthy"))
    return healthy >= desired > 0


def _refuse(budget: Manifest, budget_status: Manifest) -> None:
    name = metadata(budget).get("name")
    if int(budget_status.get("observedGeneration") or 0) < int(metadata(budget).get("generation") or 0):
        raise DisruptionError(
            f"The disruption budget {name} is still being processed by the server.", BUSY_SECONDS
        )
    if int(budget_status.get("disruptionsAllowed") or 0) > 0:
        return
    healthy, desired = (int(budget_status.get(field) or 0) for field in ("currentHealthy", "desiredHealthy"))
    condition: Mapping[str, Any] = next(
        (
            it
            for it in budget_status.get("conditions") or ()
            if it.get("type") == ALLOWED and it.get("status") == "False"
        ),
        {},
    )
    why = f"The disruption budget {name} does not allow evicting pods currently"
    if condition.get("message") and condition.get("reason") == SYNC_FAILED:
        why += f" because it failed sync: {condition['message']}"
    elif healthy <= desired:
        why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    elif condition.get("message"):
        why += f" ({condition.get('reason')}): {condition['message']}"
    raise DisruptionError(why)


def _conditions(pod: Manifest, now: str) -> list[Mapping[str, Any]]:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": now,
    }
    known: list[Mapping[str, Any]] = [it for it in status(pod).get("conditions") or () if isinstance(it, dict)]
    if any(it.get("type") == target["type"] and it.get("status") == "True" for it in known):
        return known
    return [*(it for it in known if it.get("type") != target["type"]), target]
