"""The state of a stream from its rows in the views. Any driver's rows will do: this module needs no SQLAlchemy."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from volsched.log.events.fold import Assumed, AttemptState, BindingState, LegState, ObjectState

Row = dict[str, Any]

OVERLAY = ("assumed_binding", "assumed_patch", "assumed_rv")
VIEW_TABLES: Mapping[str, str] = {
    "node": "nodes",
    "namespace": "namespaces",
    "class": "classes",
    "volume": "volumes",
    "claim": "claims",
    "pod": "pods",
    "driver": "drivers",
    "csinode": "csi_nodes",
    "capacity": "capacities",
    "attachment": "attachments",
    "notice": "notices",
    "statefulset": "stateful_sets",
    "service": "services",
    "revision": "revisions",
    "disruptionbudget": "disruption_budgets",
    "priorityclass": "priority_classes",
}
"""Noun of a stream → the table of its view."""


def object_state(row: Mapping[str, Any]) -> ObjectState:
    """An object's state as its row holds it."""
    return state_of_columns(row["version"], row["rv"], row["manifest"], *map(row.get, OVERLAY))


def state_of_columns(
    version: int,
    rv: int,
    manifest: str,
    binding: str | None = None,
    patch: str | None = None,
    assumed_on: int | None = None,
) -> ObjectState:
    """The same, without a mapping: a start reads very many. The last three are the `OVERLAY`."""
    assumed = None
    if binding is not None:
        assert patch is not None
        assert assumed_on is not None
        assumed = Assumed(binding, orjson.loads(patch), assumed_on)
    return ObjectState(version, rv, orjson.loads(manifest), assumed)


def observed_state(row: Mapping[str, Any], logged: ObjectState | None = None) -> ObjectState:
    """A pod of an observed cluster as it is now. A pod without claims has no stream, and so no version of ours."""
    manifest = orjson.loads(row["manifest"])
    return ObjectState(0, 0, manifest) if logged is None else logged._replace(manifest=manifest)


def binding_state(row: Mapping[str, Any], legs: Sequence[Mapping[str, Any]]) -> BindingState:
    plan: dict[str, Any] = {
        name: row[name] for name in ("pod", "pod_uid", "node", "decided_at", "deadline", "on_failure")
    }
    ordered = sorted(legs, key=lambda leg: int(leg["leg"]))
    return BindingState(
        version=row["version"],
        plan=plan,
        planned_at=row["planned_at"],
        state=row["state"],
        open=bool(row["open"]),
        reason=row["reason"],
        ended_at=row["ended_at"],
        legs=tuple(
            LegState(
                claim=leg["claim"],
                volume=leg["volume"],
                owner=bool(leg["owner"]),
                open=bool(leg["open"]),
                state=leg["state"],
                reason=leg["reason"],
                claim_uid=leg["claim_uid"],
                dynamic=bool(leg["dynamic"]),
                rv=leg["rv"],
                written_rv=leg["written_rv"],
                joins=leg["joins"],
                capacity=leg["capacity"],
                bytes=leg["bytes"],
            )
            for leg in ordered
        ),
    )


def attempt_state(row: Mapping[str, Any]) -> AttemptState:
    attempt: dict[str, Any] = {name: row[name] for name in ("pod", "pod_uid", "outcome", "node", "decider")}
    attempt["detail"] = orjson.loads(row["detail"])
    return AttemptState(
        version=row["version"],
        made=attempt,
        first_at=row["first_at"],
        last_at=row["last_at"],
        decided_at=row["decided_at"],
        times=row["count"],
    )
