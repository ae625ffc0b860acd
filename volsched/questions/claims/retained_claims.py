"""What a rolled-back binding has written and could not undo, why, and what a person may do about it.

On a cluster that never unbinds, such a claim stays as it is. volsched deletes no claim: a deletion is only
proposed, and only where the log proves that no pod with the claim ever had a node. A person carries it out.
"""

from typing import Any

from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, claim_is_bound, spec, uid
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.open_bindings import RetainedLeg, retained_legs
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.data_state import NEVER_USED, UNKNOWN, data_of
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import PageParameters


def retained(context: QuestionContext, parameters: PageParameters) -> Answer:
    """One item per leg, in the order of bindings; claims that were deleted since are left out."""
    items: list[dict[str, Any]] = []
    with context.database.read() as connection:
        view = view_at_head(connection)
        legs = retained_legs(connection, after=parameters.after or "", limit=parameters.limit)
        for leg in legs:
            state = view.one("claim", leg.claim)
            claim = state.manifest if isinstance(state, ObjectState) else None
            if claim is not None and uid(claim) == leg.claim_uid:
                items.append(_item(connection, leg, claim, context.now))
    return Answer(items=items, after=legs[-1].key if len(legs) == parameters.limit else None)


def _item(connection: Connection, leg: RetainedLeg, claim: Manifest, now: int) -> dict[str, Any]:
    data, why = data_of(connection, {leg.claim: claim}, now=now)[leg.claim]
    return {
        "key": leg.key,
        "claim": leg.claim,
        "volume": spec(claim).get("volumeName") or leg.volume,
        "pod": leg.pod,
        "node": leg.node,
        "binding": leg.binding,
        "since": None if leg.ended_at is None else time_text(leg.ended_at),
        "data": f"{data}: {why}" if data == UNKNOWN else data,
        "reason": leg.reason,
        "proposal": _proposal(leg, claim, data),
    }


def _proposal(leg: RetainedLeg, claim: Manifest, data: str) -> str:
    namespace, _, name = leg.claim.partition("/")
    if not claim_is_bound(claim):
        return "wait: the cluster's own controllers complete it; check that they run"
    if data == NEVER_USED:
        return f"keep it, or, if no pod needs it there: kubectl -n {namespace} delete pvc {name}"
    return f"keep it: it may hold data; pods with it run where volume {spec(claim).get('volumeName')} is reached"
