"""Whether a claim's volume was used: never-used, used, or unknown.

A cluster that is only observed has no field for it. A pod with the claim that had a node, or an attachment of its
volume, proves use. Their absence proves the contrary only if pods have been observed without a gap since the
claim's creation, and still are; otherwise it is unknown, and counts as used wherever data could be lost.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, metadata, spec, uid
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.observed_cluster import MOST_SILENT, attached_cluster, gaps, known_cursors
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import read_stream, tails
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.claims.parameters import ClaimDataParameters
from volsched.questions.context import QuestionContext
from volsched.runtime.clock import SECOND, parse_rfc3339

NEVER_USED, USED, UNKNOWN = "never-used", "used", "unknown"
LATEST = 5 * SECOND
"""A claim that is observed within this time after its creation counts as observed from the beginning."""


def claim_data(context: QuestionContext, parameters: ClaimDataParameters) -> Answer:
    """The data state of every claim, in the order of names."""
    with context.database.read() as connection:
        claims = {
            key: it.manifest
            for key, it in view_at_head(connection).every("claim")
            if isinstance(it, ObjectState)
            and it.manifest is not None
            and parameters.claims_in in (None, key.partition("/")[0])
        }
        states = data_of(connection, claims, now=context.now)
    return Answer(
        items=[
            {"claim": key, "volume": spec(claim).get("volumeName"), "data": states[key][0], "why": states[key][1]}
            for key, claim in claims.items()
        ]
    )


def data_of(connection: Connection, claims: Mapping[str, Manifest], *, now: int) -> dict[str, tuple[str, str]]:
    """Claim → its data state, and the reason. One pass over the log, from the oldest claim on."""
    ends = {key: _first_and_last(connection, key, claim) for key, claim in claims.items()}
    since = {key: first.position for key, (first, _) in ends.items() if first is not None}
    used = _uses(connection, claims, since) if since else {}
    answers: dict[str, tuple[str, str]] = {}
    doubt = _watched_without_gap(connection, now)
    for key, claim in claims.items():
        if key in used:
            answers[key] = USED, used[key]
        elif (unknown := doubt(*ends[key], claim)) is not None:
            answers[key] = UNKNOWN, unknown
        else:
            answers[key] = NEVER_USED, "no pod with it ever had a node, and its volume was never attached"
    return answers


def _first_and_last(connection: Connection, key: str, claim: Manifest) -> tuple[Event | None, Event | None]:
    """The event of the claim's creation, or of the list in which it was first observed, and its last event; None:
    the log has none."""
    last = None
    for event in reversed(read_stream(connection, f"claim/{key}")):
        last = last or event
        if event.type == "ClaimCreated":
            return (event if uid(orjson.loads(event.data)["patch"]) == uid(claim) else None), last
    return None, last


_Doubt = Callable[[Event | None, Event | None, Manifest], str | None]


def _watched_without_gap(connection: Connection, now: int) -> _Doubt:
    """Tells from a claim's first and last event why uses of it may have been missed; None: none were missed.

    Kinds are observed independently: a bound claim may be observed before the pod that it was bound for.
    """
    pod_gaps = [it for it in gaps(connection) if it.kind == "Pod"]
    last_gap = max(pod_gaps, key=lambda it: it.until, default=None)
    is_observed, cursors = attached_cluster(connection) is not None, known_cursors(connection)
    pods = cursors.get("Pod")

    def doubt(created: Event | None, changed: Event | None, claim: Manifest) -> str | None:
        if created is None or changed is None:
            return "the log does not reach back to its creation"
        if last_gap is not None and last_gap.until > created.at:
            return f"pods were not observed until {time_text(last_gap.until)} ({last_gap.reason})"
        if pods is not None and now - pods.heard_at > MOST_SILENT:
            # The next follower will write this gap into the log.
            return f"pods were not observed since {time_text(pods.heard_at)}; is the follower running?"
        made_at = parse_rfc3339(str(metadata(claim).get("creationTimestamp", "")))
        if is_observed and (not cursors or (made_at or 0) < created.at - LATEST):
            return f"it existed before it was observed, since {time_text(created.at)}"
        if pods is not None and pods.heard_at < changed.at:
            return f"pods were not observed since {time_text(pods.heard_at)}, and it has changed since; retry"
        return None

    return doubt


def _uses(connection: Connection, claims: Mapping[str, Manifest], since: Mapping[str, int]) -> dict[str, str]:
    """Claim → the first recorded use, for claims that are used."""
    of_volume = {
        spec(claim).get("volumeName"): key for key, claim in claims.items() if spec(claim).get("volumeName")
    }
    claims_of_pods: dict[str, list[str]] = {}
    first_uses: dict[str, str] = {}
    for events in tails(connection, after=min(since.values()) - 1):
        for event in events:
            for key, how in _proven_uses(connection, event, claims_of_pods, of_volume):
                if event.position >= since.get(key, event.position + 1):
                    first_uses.setdefault(key, how)
    return first_uses


def _proven_uses(
    connection: Connection, event: Event, claims_of_pods: dict[str, list[str]], of_volume: Mapping[Any, str]
) -> list[tuple[str, str]]:
    """The claims that the event proves to be used, and how; `claims_of_pods`: each pod's claims when created."""
    noun, _, name = event.stream.partition("/")
    if noun == "attachment" and event.type.endswith("Created"):
        source = spec(orjson.loads(event.data)["patch"]).get("source") or {}
        key = of_volume.get(source.get("persistentVolumeName"))
        return [] if key is None else [(key, f"its volume was attached by {name}")]
    if noun != "pod" or event.type not in ("PodCreated", "PodChanged"):
        return []
    patch = orjson.loads(event.data).get("patch") or {}
    if event.type == "PodCreated":
        claims_of_pods[event.stream] = list(claims_of_pod(patch))
    node = spec(patch).get("nodeName")
    if node and event.stream not in claims_of_pods:
        # The pod existed before the claim that it names.
        claims_of_pods[event.stream] = _claims_at(connection, event)
    return [(key, f"pod {name} used it on node {node}") for key in claims_of_pods[event.stream]] if node else []


def _claims_at(connection: Connection, event: Event) -> list[str]:
    creations = [
        it
        for it in read_stream(connection, event.stream)
        if it.type == "PodCreated" and it.position < event.position
    ]
    return list(claims_of_pod(orjson.loads(creations[-1].data)["patch"])) if creations else []
