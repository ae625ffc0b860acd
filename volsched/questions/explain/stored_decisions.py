"""The decisions about a pod as they were stored: attempts, with time and position."""

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
"""Maximum number of attempts of a pod that are read, the latest ones."""


@dataclass(frozen=True, slots=True)
class PodAttempt:
    """An attempt to place the pod."""

    id: str
    state: AttemptState

    @property
    def outcome(self) -> str:
        return str(self.state.made["outcome"])

    @property
    def node(self) -> str | None:
        return self.state.made.get("node")


def attempts_at(connection: Connection, pod: str, *, position: int, uid: str | None = None) -> list[PodAttempt]:
    """The attempts to place this pod as they were at a position, the latest first.

    Without a uid, those of all pods that have had the name.
    """
    ids = latest_attempts(connection, pod, uid=uid, limit=LOOKED_AT)
    # From their own events, because a row of the view has only their present state.
    states = states_as_of(connection, [f"attempt/{it}" for it in ids], position=position)
    attempts = [PodAttempt(it, state) for it in ids if isinstance(state := states[f"attempt/{it}"], AttemptState)]
    return sorted(attempts, key=lambda it: it.state.last_at, reverse=True)


def last_attempt(
    connection: Connection, attempts: Sequence[PodAttempt], *, position: int
) -> dict[str, Any] | None:
    """The last attempt, and, if it found a node, its binding; None if there was no attempt."""
    if not attempts:
        return None
    last, result = attempts[0], attempts[0].state.made
    detail = result["detail"]
    answer: dict[str, Any] = {
        "attempt": last.id,
        "outcome": last.outcome,
        "at": rfc3339(last.state.last_at),
        "since": rfc3339(last.state.first_at),
        "times": last.state.times,
        "decidedAt": last.state.decided_at,
        "decider": result["decider"],
        "message": detail.get("message", ""),
        "reasons": detail.get("reasons", []),
    }
    if last.outcome in (PLANNED, FAILED):
        answer |= {
            "node": last.node,
            "score": detail.get("score"),
            "scores": detail.get("scores", {}),
            "runnersUp": detail.get("runnersUp", []),
            "binding": _binding(connection, last.id, position),
        }
    return answer


def repeated_failures(attempts: Sequence[PodAttempt]) -> dict[str, Any] | None:
    """Decisions whose bindings failed, by node and message; None unless the last that ended failed.

    A binding in flight has not ended, and does not count as a success.
    """
    ended = [it for it in attempts if it.outcome != PLANNED]
    if not ended or ended[0].outcome != FAILED:
        return None
    failures = [it for it in ended if it.outcome == FAILED]
    groups: dict[tuple[Any, ...], list[PodAttempt]] = {}
    for it in failures:
        details = it.state.made["detail"]["failure"]
        groups.setdefault((it.node, it.state.made["detail"]["message"], details.get("words")), []).append(it)
    return {
        "times": len(failures),
        "since": rfc3339(_failed_at(failures[-1])),
        "last": rfc3339(_failed_at(failures[0])),
        "nodes": [_group(alike) for alike in groups.values()],
    }


def _group(attempts: Sequence[PodAttempt]) -> dict[str, Any]:
    """One item for equal failures on a node, given the latest first."""
    detail = attempts[0].state.made["detail"]
    failure = detail["failure"]
    return {
        "node": attempts[0].node,
        "times": len(attempts),
        "since": rfc3339(_failed_at(attempts[-1])),
        "last": rfc3339(_failed_at(attempts[0])),
        "binding": attempts[0].id,
        "message": detail["message"],
        **{name: failure.get(name) for name in ("stage", "reason", "claim", "volume", "words")},
    }


def _failed_at(attempt: PodAttempt) -> int:
    return int(attempt.state.made["detail"]["failure"]["at"])


def _binding(connection: Connection, id_: str, position: int) -> dict[str, Any] | None:
    """The attempt's binding: a plan and its attempt have one id."""
    stream = binding_stream(id_)
    state = states_as_of(connection, [stream], position=position)[stream]
    if not isinstance(state, BindingState):
        return None
    return {
        "state": state.state,
        "reason": state.reason,
        "legs": [{"claim": leg.claim, "volume": leg.volume, "state": leg.state} for leg in state.legs],
    }


# Why this node and not another: the reasons stored with the attempt.

NOTHING_TRIED = 'there was no attempt for pod "{pod}" up to then'


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
    """An attempt: its decision, its reasons and the refused nodes; with `node`, also the verdict on that node."""
    row = decision_audit.attempt(connection, attempt)
    if row is None:
        raise UnknownError(
            f'there is no attempt "{attempt}"; list those of a pod with: volsched audit attempts POD'
        )
    item = _item(row.id, _state(row))
    return item if node is None else item | {"asked": node, "verdict": verdict(item, node)}


def why_named(connection: Connection, name: str, *, node: str | None = None) -> Item:
    """The attempt with that id, or else the last attempt for the pod of that name in the default namespace."""
    if decision_audit.attempt(connection, name) is not None:
        return why(connection, name, node=node)
    pod = f"{DEFAULT_NAMESPACE}/{name}"
    item = why_pod(connection, pod, position=read_head(connection).position, node=node)
    if item is None:
        raise UnknownError(
            f'there is no attempt "{name}", and there was no attempt for pod "{pod}"; '
            "list attempts with: volsched audit attempts POD"
        )
    return item


def why_pod(connection: Connection, pod: str, *, position: int, node: str | None = None) -> Item | None:
    """The last attempt for a pod up to a position, with the failures if it kept failing; None: there was none.

    If several pods have had the name, it is about the last of them.
    """
    attempts = attempts_at(connection, pod, position=position)
    if not attempts:
        return None
    of_last_pod = [it for it in attempts if it.state.made["pod_uid"] == attempts[0].state.made["pod_uid"]]
    item = _item(of_last_pod[0].id, of_last_pod[0].state) | {"failing": repeated_failures(of_last_pod)}
    return item if node is None else item | {"asked": node, "verdict": verdict(item, node)}


def verdict(item: Item, node: str) -> str:
    """The attempt's verdict on a node. It stores each reason with the number of nodes and the names of a few."""
    if node == item["node"]:
        chosen = f"{node} was chosen with score {item['score']}"
        return f"{chosen}, and its binding failed: {item['message']}" if item.get("failure") else chosen
    for other in item["runnersUp"]:
        if other["node"] == node:
            return (
                f"{node} would have fitted, with score {other['score']} against {item['score']} of {item['node']}"
            )
    refusals = [it["reason"] for it in item["reasons"] if node in it["some"]]
    if refusals:
        return f"{node} was refused: {'; '.join(refusals)}"
    if item["node"] is None and len(item["reasons"]) == 1:
        return f"{node}, if it existed, was refused like all others: {item['reasons'][0]['reason']}"
    limits = f"the attempt names {RUNNERS_UP} runners-up and {EXAMPLES} nodes of each refusal"
    groups = [f"{it['nodes']} refused: {it['reason']}" for it in item["reasons"]]
    worse = (
        [f"or had a score below {item['runnersUp'][-1]['score']}"] if len(item["runnersUp"]) == RUNNERS_UP else []
    )
    possible = "; ".join([*groups, *worse]) or "nothing is stored about other nodes"
    advice = f"decide it again as of now with: volsched explain pod {item['pod']} --node {node}"
    return f"{node} is not named ({limits}); it is among these: {possible}; {advice}"


def _state(row: Row[Any]) -> AttemptState:
    return attempt_state(dict(row._mapping))


def _item(id_: str, state: AttemptState) -> Item:
    detail, attempt = state.made["detail"], state.made
    failure = detail.get("failure")
    return {
        "attempt": id_,
        "pod": attempt["pod"],
        "outcome": attempt["outcome"],
        "node": attempt.get("node"),
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
        "decider": attempt["decider"],
    }
