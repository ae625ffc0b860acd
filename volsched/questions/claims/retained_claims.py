"""What a rolled-back binding had written and could not take back, why, and what a person may do about it.

A cluster that never unbinds keeps such a claim where it is. Nothing of ours deletes a claim: a deletion is
proposed only where the log proves that no pod with the claim ever had a node, and a person carries it out.
"""

from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, claim_is_bound, spec, uid
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import look_at_head
from volsched.log.reads.open_bindings import RetainedLeg, retained_legs
from volsched.log.reads.tail import tails
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.claims.uses import first_seen
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import PageParameters

NEVER_USED, USED = "never-used", "used"


def retained(context: QuestionContext, asked: PageParameters) -> Answer:
    """Leg by leg, in the order of bindings; a claim that is gone since is left out."""
    items: list[dict[str, Any]] = []
    with context.database.read() as connection:
        look = look_at_head(connection)
        legs = retained_legs(connection, after=asked.after or "", limit=asked.limit)
        for leg in legs:
            state = look.one("claim", leg.claim)
            claim = state.manifest if isinstance(state, ObjectState) else None
            if claim is not None and uid(claim) == leg.claim_uid:
                items.append(_item(connection, leg, claim))
    return Answer(items=items, after=legs[-1].key if len(legs) == asked.limit else None)


def _item(connection: Connection, leg: RetainedLeg, claim: Manifest) -> dict[str, Any]:
    data = _data(connection, leg.claim, claim)
    return {
        "key": leg.key,
        "claim": leg.claim,
        "volume": spec(claim).get("volumeName") or leg.volume,
        "pod": leg.pod,
        "node": leg.node,
        "binding": leg.binding,
        "since": None if leg.ended_at is None else time_text(leg.ended_at),
        "data": data,
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


def _data(connection: Connection, key: str, claim: Manifest) -> str:
    """Proven only where the claim was watched from its creation on, without a gap."""
    created, unknown = first_seen(connection, key, claim)
    if created is None:
        return f"unknown: {unknown}"
    users: set[str] = set()
    for events in tails(connection, after=created.position):
        for event in events:
            if event.type == "PodCreated" and key in claims_of_pod(orjson.loads(event.data)["patch"]):
                users.add(event.stream)
            if event.stream in users and event.type in ("PodCreated", "PodChanged") and _has_node(event.data):
                return USED
    return NEVER_USED


def _has_node(data: str) -> bool:
    patch = orjson.loads(data).get("patch") or {}
    return bool((patch.get("spec") or {}).get("nodeName"))
