"""All data about one object, and a summary of all pods."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection

from volsched.binding.rules.phases import Phase
from volsched.kube.manifest import is_being_deleted, metadata, spec, status, uid
from volsched.kube.workloads import Pod
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING, Named
from volsched.log.reads.lookups import (
    bindings_by_state,
    last_attempt_detail,
    open_bindings_by_pod,
    pods_by_key,
    volumes_of_claims,
)
from volsched.log.reads.views import Concerned, StoreView
from volsched.questions.context import QuestionContext
from volsched.questions.get.documents import as_manifest, attempt_document, binding_document
from volsched.questions.get.handlers import state_of, view_as_of
from volsched.questions.get.near_names import full_id
from volsched.questions.get.parameters import OneParameters
from volsched.questions.registry import DatedDocument
from volsched.questions.status.pending_reasons import pending_reason
from volsched.runtime.clock import rfc3339
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.attempts import COMPONENT as SCHEDULER
from volsched.scheduling.rules.attempts import SCHEDULED, scheduled_message, scheduled_stream
from volsched.scheduling.rules.pod_claims import claim_uses

# `describe` prints this; programs read it as JSON. It has the same form for the present and for any position.

CONCERNED: Mapping[str, Concerned] = {"pod": "pod", "claim": "claim", "volume": "volume", "node": "node"}
"""Nouns that bindings are about."""
Manifest = Mapping[str, Any]
Description = dict[str, Any]


def describe(context: QuestionContext, parameters: OneParameters) -> DatedDocument:
    with view_as_of(context, parameters.as_of) as (view, now):
        state = state_of(context, parameters, view)
        return DatedDocument(
            description(view, parameters.named, full_id(view, parameters.named, parameters.key), state), now
        )


def description(view: StoreView, named: Named, key: str, state: State) -> Description:
    answer: Description = {"object": as_manifest(named.noun, key, state)}
    if isinstance(state, ObjectState):
        answer |= _object_parts(view, named, key, state)
    elif isinstance(state, BindingState):
        answer["steps"] = steps_of(view, key)
    return answer


def steps_of(view: StoreView, binding: str) -> list[dict[str, Any]]:
    """All events of a binding, over all streams."""
    return [
        {"position": it.position, "at": rfc3339(it.at), "stream": it.stream, "type": it.type, "by": it.actor}
        for it in view.steps_of(binding)
    ]


def _object_parts(view: StoreView, named: Named, key: str, state: ObjectState) -> Description:
    manifest = state.manifest or {}
    own_uid = uid(manifest)
    bindings: list[tuple[str, BindingState]] = []
    if named.noun in CONCERNED:
        bindings = view.bindings_of(CONCERNED[named.noun], key)
    if named.noun == "pod":
        bindings = [it for it in bindings if it[1].plan["pod_uid"] == own_uid]
    parts: Description = {}
    assumption = _assumption(view, state)
    if assumption is not None:
        parts["assumption"] = assumption
    parts |= _related_objects(view, named.noun, key, state)
    parts["bindings"] = [binding_document(id_, it) for id_, it in reversed(bindings)]
    if named.noun == "pod":
        attempts = [it for it in view.attempts_of(key) if it[1].made["pod_uid"] == own_uid]
        parts["attempts"] = [attempt_document(id_, it) for id_, it in reversed(attempts)]
    notices = [it for it in view.notices_about(f"{named.title}/{key}") if _is_about(it, own_uid)]
    stored = {str(metadata(it).get("name", "")) for it in notices}
    events = [*map(_event, notices), *(_scheduled_events(bindings, stored) if named.noun == "pod" else ())]
    parts["events"] = sorted(events, key=lambda it: (it["last"], it["reason"]))
    return parts


# --- related objects ------------------------------------------------------------------------------------


def _related_objects(view: StoreView, noun: str, key: str, state: ObjectState) -> Description:
    manifest = state.manifest or {}
    if noun == "pod":
        return {"claims": list(_claims(view, manifest, state.rv))}
    if noun == "claim":
        return {"usedBy": [pod.key for pod in _pods(view) if any(use.key == key for use in claim_uses(pod))]}
    if noun == "node":
        return {"pods": [pod.key for pod in _pods(view) if pod.node_name == key]}
    return {}


def _pods(view: StoreView) -> Iterator[Pod]:
    for _, state in view.every("pod"):
        if isinstance(state, ObjectState) and state.manifest is not None:
            pod = read_object("pod", state.manifest, state.rv)
            assert isinstance(pod, Pod)
            yield pod


def _claims(view: StoreView, manifest: Manifest, rv: int) -> Iterator[dict[str, Any]]:
    pod = read_object("pod", manifest, rv)
    assert isinstance(pod, Pod)
    for use in claim_uses(pod):
        state = view.one("claim", use.key)
        claim = (state.manifest or {}) if isinstance(state, ObjectState) else {}
        phase = "Terminating" if is_being_deleted(claim) else status(claim).get("phase", "not found")
        yield {"claim": use.name, "phase": phase, "volume": spec(claim).get("volumeName")}


def _assumption(view: StoreView, state: ObjectState) -> dict[str, Any] | None:
    """The assumption of an open binding over the object; None once the binding has ended."""
    assumed = state.assumed
    binding = None if assumed is None else view.one(BINDING, assumed.binding)
    if assumed is None or not isinstance(binding, BindingState) or not binding.open:
        return None
    return {"binding": assumed.binding, "node": binding.plan["node"], "patch": dict(assumed.patch)}


# --- decisions and events ------------------------------------------------------------------------------


def _is_about(notice: Manifest, own_uid: str) -> bool:
    """Whether the notice is about this object, not about an earlier one of the same name."""
    involved_uid = notice.get("involvedObject", {}).get("uid")
    return not involved_uid or not own_uid or involved_uid == own_uid


def _event(notice: Manifest) -> dict[str, Any]:
    """An event, read from either form; that of `events.k8s.io` has one time, a series and a reporter."""
    series, at = notice.get("series") or {}, notice.get("eventTime") or ""
    return {
        "type": notice.get("type", ""),
        "reason": notice.get("reason", ""),
        "first": notice.get("firstTimestamp") or at,
        "last": notice.get("lastTimestamp") or series.get("lastObservedTime") or at,
        "count": notice.get("count") or series.get("count") or 1,
        "from": (notice.get("source") or {}).get("component") or notice.get("reportingComponent") or "",
        "message": notice.get("message", ""),
    }


def _scheduled_events(
    bindings: list[tuple[str, BindingState]], stored: Collection[str]
) -> Iterator[dict[str, Any]]:
    """The event "Scheduled" of bindings whose event has expired: the binding itself is kept."""
    for id_, state in bindings:
        is_stored = scheduled_stream(state.plan["pod"], id_).rpartition("/")[2] in stored
        if state.state == Phase.COMMITTED and state.ended_at is not None and not is_stored:
            at = rfc3339(state.ended_at)
            yield {
                "type": "Normal",
                "reason": SCHEDULED,
                "first": at,
                "last": at,
                "count": 1,
                "from": SCHEDULER,
                "message": scheduled_message(state.plan),
            }


# A summary of every pod: its node, its volumes, and, without a node, the reason of its last attempt.


def summary(connection: Connection) -> dict[str, Any]:
    claims, open_bindings = volumes_of_claims(connection), open_bindings_by_pod(connection)
    pods = []
    for state in pods_by_key(connection):
        pod = read_object("pod", state.manifest or {}, state.rv)
        assert isinstance(pod, Pod)
        volumes = {use.name: claims.get(use.key) for use in claim_uses(pod)}
        pods.append(
            {
                "pod": pod.key,
                "node": pod.node_name or None,
                "claims": volumes,
                "state": _state(connection, pod, state.manifest or {}, open_bindings.get(pod.key), volumes),
            }
        )
    return {"pods": pods, "bindings": bindings_by_state(connection)}


def _state(
    connection: Connection, pod: Pod, manifest: Manifest, binding: str | None, claims: Mapping[str, str | None]
) -> str:
    if pod.node_name and all(claims.values()):
        return "bound"
    if pod.node_name and binding is None:
        # Its node was set by another party; no scheduler handles its claims.
        return f"without its volumes; see: volsched explain pod {pod.key}"
    if binding is not None:
        return binding
    detail = last_attempt_detail(connection, pod.key, uid=pod.meta.uid)
    if detail is None:
        return f"waiting: {pending_reason(manifest, in_flight=False)}"
    return f"pending: {from_json(detail)['message']}"
