"""The handlers of the questions about claims: their users, the leftovers of rollbacks, handed-over data."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, claim_is_bound, claim_of, spec, status, uid
from volsched.kube.storage import AVAILABLE
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import kind_called
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.open_bindings import RetainedLeg, retained_legs
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.data_state import NEVER_USED, UNKNOWN, USED, data_of
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.context import QuestionContext
from volsched.questions.history.volume_history import CLEAN_DATA, NEVER_BOUND, claims_of
from volsched.questions.parameters import MOST, ObjectParameters, PageParameters, WindowParameters
from volsched.questions.refusals import QuestionError, UnknownError

# The users of a claim: its pods now, and, if it was observed all the time, whether any pod ever used it.


CLAIM, VOLUME = kind_called("pvc"), kind_called("pv")
PROVEN = "no pod ever used it"


def uses(context: QuestionContext, parameters: ObjectParameters) -> dict[str, Any]:
    if parameters.noun not in (CLAIM.noun, VOLUME.noun):
        raise QuestionError(f"a {parameters.named.singular} is not used by pods; ask for a pvc or a pv")
    with context.database.read() as connection:
        view = view_at_head(connection)
        with context.with_suggestions(connection, parameters.named, parameters.key):
            subject = view.one(parameters.noun, parameters.key)
            if not isinstance(subject, ObjectState) or subject.manifest is None:
                raise UnknownError(
                    f"there is no {parameters.named.singular} {parameters.key} now; see: volsched history"
                )
        key = parameters.key if parameters.noun == CLAIM.noun else _claim_key(subject.manifest)
        state = None if key is None else view.one(CLAIM.noun, key)
        claim = state.manifest if isinstance(state, ObjectState) else None
        pods = [
            {"pod": name, "node": spec(it.manifest).get("nodeName"), "phase": status(it.manifest).get("phase")}
            for name, it in view.every("pod")
            if isinstance(it, ObjectState) and it.manifest is not None and key in set(claims_of_pod(it.manifest))
        ]
        volume = parameters.name if parameters.noun == VOLUME.noun else spec(subject.manifest).get("volumeName")
        unused = None if claim is None or pods or key is None else _never_used(connection, key, claim, context.now)
    return {"claim": key, "volume": volume, "pods": pods, "unusedSince": _unused_since(claim), "neverUsed": unused}


def _claim_key(volume: Manifest) -> str | None:
    reference = claim_of(volume)
    return None if not reference else f"{reference.get('namespace')}/{reference.get('name')}"


def _unused_since(claim: Manifest | None) -> str | None:
    """The time in the condition `Unused`, which Kubernetes writes from 1.37 on."""
    conditions: list[Mapping[str, Any]] = status(claim or {}).get("conditions") or []
    return next(
        (
            it.get("lastTransitionTime")
            for it in conditions
            if it.get("type") == "Unused" and it.get("status") == "True"
        ),
        None,
    )


def _never_used(connection: Connection, key: str, claim: Manifest, now: int) -> str:
    data, why = data_of(connection, {key: claim}, now=now)[key]
    return PROVEN if data == NEVER_USED else f"no: {why}" if data == USED else f"not known: {why}"


# Writes that a rolled-back binding could not undo, with the reason and a proposal.
#
# On a cluster that never unbinds, such a claim is retained. volsched deletes no claim: a deletion is only
# proposed, and only if the log proves that no pod with the claim ever had a node. A person carries it out.


def retained(context: QuestionContext, parameters: PageParameters) -> Answer:
    """The retained legs, one item each, in the order of bindings; claims deleted since are left out."""
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


# Volumes that were offered again with contents that may not have been erased: data can leak.


def handovers(context: QuestionContext, parameters: WindowParameters) -> Answer:
    """The handovers, in the order of volumes' names; the next page begins after the last volume of this one."""
    items: list[dict[str, Any]] = []
    with context.window(parameters) as (connection, within):
        view = view_at_head(connection)
        for volume, state in view.every("volume"):
            if parameters.after is not None and volume <= parameters.after:
                continue
            if len(items) >= parameters.limit:
                return Answer(items=items, after=items[-1]["volume"])
            try:
                tenures = claims_of(connection, volume, within, after=None, limit=MOST).items
            except UnknownError:
                continue
            is_offered = isinstance(state, ObjectState) and status(state.manifest or {}).get("phase") == AVAILABLE
            holders = [*tenures, {"claim": None, "from": None}] if is_offered else tenures
            items += [
                {
                    "volume": volume,
                    "held": before["claim"],
                    "until": before["until"],
                    "given": after["claim"],
                    "at": after["from"],
                    "data": before["data"],
                }
                for before, after in pairwise(holders)
                if before["until"] is not None and before["data"] not in (CLEAN_DATA, NEVER_BOUND)
            ]
    return Answer(items=items)
