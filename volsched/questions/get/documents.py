"""Objects, bindings and attempts as documents: what `get -o json` and the API give, whatever asks for it."""

from typing import Any

from volsched.log.events.fold import AttemptState, BindingState, ObjectState, State, versioned
from volsched.log.events.streams import KIND_OF_NOUN
from volsched.runtime.clock import rfc3339

OUR_API = "volsched.io/v1"


def as_manifest(noun: str, key: str, state: State) -> dict[str, Any]:
    """The object as the API shows it; bindings and attempts in the same form."""
    if isinstance(state, BindingState):
        return _ours("Binding", key, state.plan["pod"], state.planned_at, binding_told(key, state))
    if isinstance(state, AttemptState):
        return _ours("Attempt", key, state.made["pod"], state.first_at, attempt_told(key, state))
    assert isinstance(state, ObjectState)
    kind = KIND_OF_NOUN[noun]
    return {"apiVersion": kind.api_version, "kind": kind.name, **versioned(state)}


def as_list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def binding_told(id_: str, state: BindingState) -> dict[str, Any]:
    plan = state.plan
    told = {
        "id": id_,
        "pod": plan["pod"],
        "node": plan["node"],
        "state": state.state,
        "open": state.open,
        "reason": state.reason,
        "decidedAt": plan["decided_at"],
        "plannedAt": rfc3339(state.planned_at),
        "deadline": _time(plan.get("deadline")),
        "endedAt": _time(state.ended_at),
        "legs": [
            {
                "claim": leg.claim,
                "volume": leg.volume,
                "state": leg.state,
                "open": leg.open,
                "provisioned": leg.dynamic,
                "reason": leg.reason,
            }
            for leg in state.legs
        ],
    }
    return {name: value for name, value in told.items() if value is not None}


def attempt_told(id_: str, state: AttemptState) -> dict[str, Any]:
    made = state.made
    told = {
        "id": id_,
        "pod": made["pod"],
        "outcome": made["outcome"],
        "node": made.get("node"),
        "count": state.times,
        "firstAt": rfc3339(state.first_at),
        "lastAt": rfc3339(state.last_at),
        "decidedAt": state.decided_at,
        "decider": made["decider"],
        **made["detail"],
    }
    return {name: value for name, value in told.items() if value is not None}


def _ours(kind: str, key: str, pod: str, at: int, told: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": key, "namespace": pod.rpartition("/")[0], "creationTimestamp": rfc3339(at)}
    return {"apiVersion": OUR_API, "kind": kind, "metadata": metadata, "status": told}


def _time(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)
