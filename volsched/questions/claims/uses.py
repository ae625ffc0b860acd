"""Who uses a claim: its pods now, and, where it was observed all the time, whether any pod ever did."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, claim_of, spec, status
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import kind_called
from volsched.log.reads.as_of import view_at_head
from volsched.questions.claims.data_state import NEVER_USED, USED, data_of
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import ObjectParameters
from volsched.questions.refusals import QuestionError, UnknownError

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
