"""Whether anybody used a claim's volume: never-used, used, or unknown.

A cluster that is only followed has no field that says so. That a pod with the claim had a node, or that its volume
was attached, proves use. That neither ever was proves the contrary only where pods were heard of without a gap
since the claim was made, and are still heard of; everything else is unknown, and counts as used wherever data
could be lost.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, metadata, spec, uid
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.observed_cluster import MOST_SILENT, attached_cluster, gaps, known_cursors
from volsched.log.reads.as_of import look_at_head
from volsched.log.reads.tail import read_stream, tails
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.claims.parameters import ClaimDataParameters
from volsched.questions.context import QuestionContext
from volsched.runtime.clock import SECOND, parse_rfc3339

NEVER_USED, USED, UNKNOWN = "never-used", "used", "unknown"
LATEST = 5 * SECOND
"""So long after its creation a claim may be heard of, and still be new."""


def claim_data(context: QuestionContext, parameters: ClaimDataParameters) -> Answer:
    """Of every claim that there is, in the order of names."""
    with context.database.read() as connection:
        claims = {
            key: it.manifest
            for key, it in look_at_head(connection).every("claim")
            if isinstance(it, ObjectState)
            and it.manifest is not None
            and parameters.claims_in in (None, key.partition("/")[0])
        }
        known = data_of(connection, claims, now=context.now)
    return Answer(
        items=[
            {"claim": key, "volume": spec(claim).get("volumeName"), "data": known[key][0], "why": known[key][1]}
            for key, claim in claims.items()
        ]
    )


def data_of(connection: Connection, claims: Mapping[str, Manifest], *, now: int) -> dict[str, tuple[str, str]]:
    """Claim → what is known of its data, and why. One pass over the log, from the oldest claim on."""
    ends = {key: _first_and_last(connection, key, claim) for key, claim in claims.items()}
    since = {key: first.position for key, (first, _) in ends.items() if first is not None}
    used = _uses(connection, claims, since) if since else {}
    found: dict[str, tuple[str, str]] = {}
    doubt = _watched_without_gap(connection, now)
    for key, claim in claims.items():
        if key in used:
            found[key] = USED, used[key]
        elif (unknown := doubt(*ends[key], claim)) is not None:
            found[key] = UNKNOWN, unknown
        else:
            found[key] = NEVER_USED, "no pod with it ever had a node, and its volume was never attached"
    return found


def _first_and_last(connection: Connection, key: str, claim: Manifest) -> tuple[Event | None, Event | None]:
    """The event of the claim's creation, or of the list that first told of it, and its last one; None where the
    log has neither of them."""
    last = None
    for it in reversed(read_stream(connection, f"claim/{key}")):
        last = last or it
        if it.type == "ClaimCreated":
            return (it if uid(orjson.loads(it.data)["patch"]) == uid(claim) else None), last
    return None, last


_Doubt = Callable[[Event | None, Event | None, Manifest], str | None]


def _watched_without_gap(connection: Connection, now: int) -> _Doubt:
    """Answers for a claim's first and last event why uses may have been missed; None: none can have been.

    There is no order between kinds: a claim that is bound may be told before the pod that it was bound for.
    """
    heard = [it for it in gaps(connection) if it.kind == "Pod"]
    last = max(heard, key=lambda it: it.until, default=None)
    is_observed, cursors = attached_cluster(connection) is not None, known_cursors(connection)
    pods = cursors.get("Pod")

    def doubt(created: Event | None, changed: Event | None, claim: Manifest) -> str | None:
        if created is None or changed is None:
            return "the log does not reach back to its creation"
        if last is not None and last.until > created.at:
            return f"pods were not heard of until {time_text(last.until)} ({last.reason})"
        if pods is not None and now - pods.heard_at > MOST_SILENT:
            # Its gap is written by whoever follows next.
            return f"pods were not heard of since {time_text(pods.heard_at)}; is the follower running?"
        made_at = parse_rfc3339(str(metadata(claim).get("creationTimestamp", "")))
        if is_observed and (not cursors or (made_at or 0) < created.at - LATEST):
            return f"it was there before it was observed, since {time_text(created.at)}"
        if pods is not None and pods.heard_at < changed.at:
            return f"pods were not heard of since {time_text(pods.heard_at)}, and it has changed since; ask again"
        return None

    return doubt


def _uses(connection: Connection, claims: Mapping[str, Manifest], since: Mapping[str, int]) -> dict[str, str]:
    """Claim → the first use that is recorded, of those that are used."""
    of_volume = {
        spec(claim).get("volumeName"): key for key, claim in claims.items() if spec(claim).get("volumeName")
    }
    named: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for events in tails(connection, after=min(since.values()) - 1):
        for event in events:
            for key, how in _used_by(connection, event, named, of_volume):
                if event.position >= since.get(key, event.position + 1):
                    found.setdefault(key, how)
    return found


def _used_by(
    connection: Connection, event: Event, named: dict[str, list[str]], of_volume: Mapping[Any, str]
) -> list[tuple[str, str]]:
    """The claims that the event proves to be used; `named` is what each pod was made with."""
    noun, _, name = event.stream.partition("/")
    if noun == "attachment" and event.type.endswith("Created"):
        source = spec(orjson.loads(event.data)["patch"]).get("source") or {}
        key = of_volume.get(source.get("persistentVolumeName"))
        return [] if key is None else [(key, f"its volume was attached by {name}")]
    if noun != "pod" or event.type not in ("PodCreated", "PodChanged"):
        return []
    patch = orjson.loads(event.data).get("patch") or {}
    if event.type == "PodCreated":
        named[event.stream] = list(claims_of_pod(patch))
    node = spec(patch).get("nodeName")
    if node and event.stream not in named:
        # The pod was there before the claim that it names.
        named[event.stream] = _claims_at(connection, event)
    return [(key, f"pod {name} used it on node {node}") for key in named[event.stream]] if node else []


def _claims_at(connection: Connection, event: Event) -> list[str]:
    made = [
        it
        for it in read_stream(connection, event.stream)
        if it.type == "PodCreated" and it.position < event.position
    ]
    return list(claims_of_pod(orjson.loads(made[-1].data)["patch"])) if made else []
