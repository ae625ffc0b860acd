"""Why this node and not that one: what was stored of an attempt when it was made."""

from typing import Any

from sqlalchemy import Connection, Row

from volsched.log.events.fold import AttemptState
from volsched.log.reads import decision_audit
from volsched.log.reads.event_audit import Window
from volsched.log.reads.tail import read_head
from volsched.log.rows import attempt_state
from volsched.objects.rules.notices import DEFAULT_NAMESPACE
from volsched.questions.audit.answers import Answer, Item, UnknownError, place_in, place_token, time_text
from volsched.questions.explain.stored_decisions import attempts_at, failing
from volsched.scheduling.rules.attempts import RUNNERS_UP
from volsched.scheduling.rules.cycle import EXAMPLES

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
