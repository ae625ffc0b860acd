"""What was decided about a pod, as it is kept: attempts, facts with time and position."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.log.events.fold import AttemptState, BindingState, binding_stream
from volsched.log.reads import decision_audit
from volsched.log.reads.decision_audit import latest_attempts
from volsched.log.reads.event_audit import Window, states_as_of
from volsched.log.reads.tail import read_head
from volsched.log.row_states import attempt_state
from volsched.questions.audit.answers import Answer, Item, place_in, place_token, time_text
from volsched.questions.refusals import UnknownError
from volsched.runtime.clock import rfc3339
from volsched.scheduling.rules.attempts import FAILED, PLANNED, RUNNERS_UP
from volsched.scheduling.rules.cycle import EXAMPLES

LOOKED_AT = 500
"""Attempts of a pod, the latest: a pod that failed more often is described by these."""


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


# Why this node and not that one: what was stored of an attempt when it was made.

NOTHING_TRIED = 'nothing was tried for pod "{pod}" up to then'


def attempts_of(connection: Connection, pod: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """All attempts to schedule a pod, the latest first."""
    rows = decision_audit.attempts_for(connection, pod, within, after=place_in(after), limit=limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    return Answer(
        items=[_item(row.id, _state(row)) for row in rows],
        after=place_token(rows[-1].last_at, rows[-1].id) if more else None,
    )


def why(connection: Connection, attempt: str, *, node: str | None = None) -> Item:
    """What was decided, on what, and against which nodes; with a node, what was decided about that one."""
    row = decision_audit.attempt(connection, attempt)
    if row is None:
        raise UnknownError(
            f'there is no attempt "{attempt}"; list those of a pod with: volsched audit attempts POD'
        )
    item = _item(row.id, _state(row))
    return item if node is None else item | {"asked": node, "verdict": verdict(item, node)}


def why_named(connection: Connection, name: str, *, node: str | None = None) -> Item:
    """Of the attempt of that name, else of the pod of that name in the namespace that is meant where none is."""
    if decision_audit.attempt(connection, name) is not None:
        return why(connection, name, node=node)
    pod = f"{DEFAULT_NAMESPACE}/{name}"
    item = why_pod(connection, pod, position=read_head(connection).position, node=node)
    if item is None:
        raise UnknownError(
            f'there is no attempt "{name}", and nothing was tried for pod "{pod}"; '
            "list attempts with: volsched audit attempts POD"
        )
    return item


def why_pod(connection: Connection, pod: str, *, position: int, node: str | None = None) -> Item | None:
    """The same of a pod's last attempt at a position, with the failures if it kept failing; None: it had none.

    Where the name was borne by several pods, of the last of them.
    """
    tried = attempts_at(connection, pod, position=position)
    if not tried:
        return None
    mine = [it for it in tried if it.state.made["pod_uid"] == tried[0].state.made["pod_uid"]]
    item = _item(mine[0].id, mine[0].state) | {"failing": failing(mine)}
    return item if node is None else item | {"asked": node, "verdict": verdict(item, node)}


def verdict(item: Item, node: str) -> str:
    """What the attempt says of a node. It keeps the reasons by set of nodes and names a few of each."""
    if node == item["node"]:
        chosen = f"{node} was chosen with score {item['score']}"
        return f"{chosen}, and its binding failed: {item['message']}" if item.get("failure") else chosen
    for other in item["runnersUp"]:
        if other["node"] == node:
            return f"{node} would have done, with score {other['score']} against {item['score']} of {item['node']}"
    refusals = [it["reason"] for it in item["reasons"] if node in it["some"]]
    if refusals:
        return f"{node} was refused: {'; '.join(refusals)}"
    if item["node"] is None and len(item["reasons"]) == 1:
        return f"{node}, if it was there, was refused like all others: {item['reasons'][0]['reason']}"
    kept = f"the attempt names {RUNNERS_UP} runners-up and {EXAMPLES} nodes of each refusal"
    groups = [f"{it['nodes']} refused: {it['reason']}" for it in item["reasons"]]
    worse = (
        [f"or had a score below {item['runnersUp'][-1]['score']}"] if len(item["runnersUp"]) == RUNNERS_UP else []
    )
    possible = "; ".join([*groups, *worse]) or "nothing was kept of other nodes"
    now = f"judge it as things are now with: volsched explain pod {item['pod']} --node {node}"
    return f"{node} is not named ({kept}); it is among these: {possible}; {now}"


def _state(row: Row[Any]) -> AttemptState:
    return attempt_state(dict(row._mapping))


def _item(id_: str, state: AttemptState) -> Item:
    detail, made = state.made["detail"], state.made
    failure = detail.get("failure")
    return {
        "attempt": id_,
        "pod": made["pod"],
        "outcome": made["outcome"],
        "node": made.get("node"),
        "message": detail.get("message") or None,
        "score": detail.get("score"),
        "scores": detail.get("scores"),
        "runnersUp": detail.get("runnersUp", []),
        "reasons": detail.get("reasons", []),
        "failure": None if failure is None else failure | {"at": time_text(failure["at"])},
        "firstAt": time_text(state.first_at),
        "lastAt": time_text(state.last_at),
        "count": state.times,
        "decidedAt": state.decided_at,
        "decider": made["decider"],
    }
