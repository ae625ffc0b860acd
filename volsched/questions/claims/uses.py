"""Who uses a claim: its pods now, and where it was watched all the time, whether there ever was one."""

from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, claim_of, metadata, spec, status, uid
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import kind_called
from volsched.log.observed_cluster import attached_cluster, gaps, known_cursors
from volsched.log.reads.as_of import look_at_head
from volsched.log.reads.tail import read_stream, tails
from volsched.questions.audit.answers import time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.context import QuestionContext
from volsched.questions.parameters import ObjectParameters
from volsched.questions.refusals import QuestionError, UnknownError
from volsched.runtime.clock import SECOND, parse_rfc3339

CLAIM, VOLUME = kind_called("pvc"), kind_called("pv")
PROVEN = "nobody ever used it"
LATEST = 5 * SECOND
"""So long after its creation a claim may be heard of, and still be new."""


def uses(context: QuestionContext, asked: ObjectParameters) -> dict[str, Any]:
    if asked.noun not in (CLAIM.noun, VOLUME.noun):
        raise QuestionError(f"a {asked.named.singular} is not used by pods; ask for a pvc or a pv")
    with context.database.read() as connection:
        look = look_at_head(connection)
        with context.known(connection, asked.named, asked.key):
            found = look.one(asked.noun, asked.key)
            if not isinstance(found, ObjectState) or found.manifest is None:
                raise UnknownError(f"there is no {asked.named.singular} {asked.key} now; see: volsched history")
        key = asked.key if asked.noun == CLAIM.noun else _claim_key(found.manifest)
        state = None if key is None else look.one(CLAIM.noun, key)
        claim = state.manifest if isinstance(state, ObjectState) else None
        pods = [
            {"pod": name, "node": spec(it.manifest).get("nodeName"), "phase": status(it.manifest).get("phase")}
            for name, it in look.every("pod")
            if isinstance(it, ObjectState) and it.manifest is not None and key in set(claims_of_pod(it.manifest))
        ]
        volume = asked.name if asked.noun == VOLUME.noun else spec(found.manifest).get("volumeName")
        unused = None if claim is None or pods or key is None else _never_used(connection, key, claim)
    return {"claim": key, "volume": volume, "pods": pods, "unusedSince": _unused_since(claim), "neverUsed": unused}


def _claim_key(volume: Manifest) -> str | None:
    reference = claim_of(volume)
    return None if not reference else f"{reference.get('namespace')}/{reference.get('name')}"


def _unused_since(claim: Manifest | None) -> str | None:
    """As Kubernetes itself says it, from 1.37 on."""
    told: list[Mapping[str, Any]] = status(claim or {}).get("conditions") or []
    return next(
        (it.get("lastTransitionTime") for it in told if it.get("type") == "Unused" and it.get("status") == "True"),
        None,
    )


def first_seen(connection: Connection, key: str, claim: Manifest) -> tuple[Event | None, str]:
    """The event of the claim's creation, if pods were heard of without a gap since; else None and why not."""
    created = next(
        (
            it
            for it in reversed(read_stream(connection, f"claim/{key}"))
            if it.type == "ClaimCreated" and uid(orjson.loads(it.data)["patch"]) == uid(claim)
        ),
        None,
    )
    if created is None:
        return None, "the log does not reach back to its creation"
    for it in gaps(connection):
        if it.kind == "Pod" and it.until > created.at:
            return None, f"pods were not heard of until {time_text(it.until)} ({it.reason})"
    is_observed = attached_cluster(connection) is not None
    made_at = parse_rfc3339(str(metadata(claim).get("creationTimestamp", "")))
    if is_observed and (not known_cursors(connection) or (made_at or 0) < created.at - LATEST):
        return None, f"it was there before it was observed, since {time_text(created.at)}"
    return created, ""


def _never_used(connection: Connection, key: str, claim: Manifest) -> str:
    created, unknown = first_seen(connection, key, claim)
    if created is None:
        return f"not known: {unknown}"
    for events in tails(connection, after=created.position):
        for event in events:
            if event.type == "PodCreated" and key in claims_of_pod(orjson.loads(event.data)["patch"]):
                return f"no: pod {event.stream.removeprefix('pod/')} used it, seen {time_text(event.at)}"
    return PROVEN
