"""Why this node and not that one: what was stored of an attempt when it was made."""

from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Row

from volsched.core.attempts import RUNNERS_UP
from volsched.core.cycle import EXAMPLES
from volsched.insight.answers import Answer, Item, UnknownError, place_in, place_token, time_text
from volsched.store import audit
from volsched.store.audit_log import Window


def attempts_of(connection: Connection, pod: str, within: Window, *, after: str | None, limit: int) -> Answer:
    """All attempts to schedule a pod, the latest first."""
    rows = audit.attempts_for(connection, pod, within, after=place_in(after), limit=limit + 1)
    more = len(rows) > limit
    rows = rows[:limit]
    return Answer(
        items=[_item(row) for row in rows], after=place_token(rows[-1].last_at, rows[-1].id) if more else None
    )


def why(connection: Connection, attempt: str, *, node: str | None = None) -> Item:
    """What was decided, on what, and against which nodes; with a node, what was decided about that one."""
    row = audit.attempt(connection, attempt)
    if row is None:
        raise UnknownError(
            f'there is no attempt "{attempt}"; list those of a pod with: volsched audit attempts POD'
        )
    item = _item(row)
    return item if node is None else item | {"asked": node, "verdict": verdict(item, node)}


def verdict(item: Item, node: str) -> str:
    """What the attempt says of a node. It keeps the reasons by set of nodes and names a few of each."""
    if node == item["node"]:
        return f"{node} was chosen with score {item['score']}"
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


def _item(row: Row[Any]) -> Item:
    detail = from_json(row.detail)
    return {
        "attempt": row.id,
        "pod": row.pod,
        "outcome": row.outcome,
        "node": row.node,
        "message": detail.get("message") or None,
        "score": detail.get("score"),
        "scores": detail.get("scores"),
        "runnersUp": detail.get("runnersUp", []),
        "reasons": detail.get("reasons", []),
        "firstAt": time_text(row.first_at),
        "lastAt": time_text(row.last_at),
        "count": row.count,
        "decidedAt": row.decided_at,
        "decider": row.decider,
    }
