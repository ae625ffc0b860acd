"""What was decided about a pod, as it is kept: facts of the past, with their time and position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from volsched.log.events.fold import AttemptState, BindingState
from volsched.log.events.object_states import binding_stream
from volsched.log.reads.decision_audit import latest_attempts
from volsched.log.reads.event_audit import states_as_of
from volsched.runtime.clock import rfc3339
from volsched.scheduling.rules.attempts import FAILED, PLANNED

LOOKED_AT = 500
"""Attempts of a pod, the latest: who fails more often than that is told by these."""


@dataclass(frozen=True, slots=True)
class Tried:
    """An attempt to place the pod."""

    id: str
    state: AttemptState

    @property
    def outcome(self) -> str:
        return str(self.state.made["outcome"])

    @property
    def node(self) -> str | None:
        return self.state.made.get("node")


def attempts_at(connection: Connection, pod: str, *, position: int, uid: str | None = None) -> list[Tried]:
    """The attempts to place this pod as they were at a position, the latest first.

    Without a uid, of all pods that bore the name.
    """
    ids = latest_attempts(connection, pod, uid=uid, limit=LOOKED_AT)
    # From their own events: a row of the view says what they have become since.
    states = states_as_of(connection, [f"attempt/{it}" for it in ids], position=position)
    found = [Tried(it, state) for it in ids if isinstance(state := states[f"attempt/{it}"], AttemptState)]
    return sorted(found, key=lambda it: it.state.last_at, reverse=True)


def past_of(connection: Connection, tried: Sequence[Tried], *, position: int) -> dict[str, Any] | None:
    """The last attempt, and where that found a node, what became of it; None where there was none."""
    if not tried:
        return None
    last, made = tried[0], tried[0].state.made
    detail = made["detail"]
    told: dict[str, Any] = {
        "attempt": last.id,
        "outcome": last.outcome,
        "at": rfc3339(last.state.last_at),
        "since": rfc3339(last.state.first_at),
        "times": last.state.times,
        "decidedAt": last.state.decided_at,
        "decider": made["decider"],
        "message": detail.get("message", ""),
        "reasons": detail.get("reasons", []),
    }
    if last.outcome in (PLANNED, FAILED):
        told |= {
            "node": last.node,
            "score": detail.get("score"),
            "scores": detail.get("scores", {}),
            "runnersUp": detail.get("runnersUp", []),
            "binding": _binding(connection, last.id, position),
        }
    return told


def failing(tried: Sequence[Tried]) -> dict[str, Any] | None:
    """Decisions that came to nothing, by node and what was said; None unless the last that ended is one of them.

    One that is under way has not ended: it is no reason to believe that this time all will go well.
    """
    ended = [it for it in tried if it.outcome != PLANNED]
    if not ended or ended[0].outcome != FAILED:
        return None
    failed = [it for it in ended if it.outcome == FAILED]
    groups: dict[tuple[Any, ...], list[Tried]] = {}
    for it in failed:
        failure = it.state.made["detail"]["failure"]
        groups.setdefault((it.node, it.state.made["detail"]["message"], failure.get("words")), []).append(it)
    return {
        "times": len(failed),
        "since": rfc3339(_failed_at(failed[-1])),
        "last": rfc3339(_failed_at(failed[0])),
        "nodes": [_group(mine) for mine in groups.values()],
    }


def _group(mine: Sequence[Tried]) -> dict[str, Any]:
    """The same failure on the same node, the latest first."""
    detail = mine[0].state.made["detail"]
    failure = detail["failure"]
    return {
        "node": mine[0].node,
        "times": len(mine),
        "since": rfc3339(_failed_at(mine[-1])),
        "last": rfc3339(_failed_at(mine[0])),
        "binding": mine[0].id,
        "message": detail["message"],
        **{name: failure.get(name) for name in ("stage", "reason", "claim", "volume", "words")},
    }


def _failed_at(tried: Tried) -> int:
    return int(tried.state.made["detail"]["failure"]["at"])


def _binding(connection: Connection, id_: str, position: int) -> dict[str, Any] | None:
    """A plan and its attempt have one id."""
    stream = binding_stream(id_)
    state = states_as_of(connection, [stream], position=position)[stream]
    if not isinstance(state, BindingState):
        return None
    return {
        "state": state.state,
        "reason": state.reason,
        "legs": [{"claim": leg.claim, "volume": leg.volume, "state": leg.state} for leg in state.legs],
    }
