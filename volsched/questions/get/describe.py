"""Everything we know of one object, as data: what it is, what was decided about it, and what was told of it.

`describe` prints it; a program takes it as JSON. It is the same now and as of any position.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from volsched.binding.rules.phases import Phase
from volsched.kube.manifest import is_being_deleted, metadata, spec, status, uid
from volsched.kube.workloads import Pod
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.kind_names import Named
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import Concerned, Look
from volsched.questions.get.documents import as_manifest, attempt_told, binding_told
from volsched.runtime.clock import rfc3339
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.pod_scheduled import COMPONENT as SCHEDULER
from volsched.scheduling.rules.pod_scheduled import SCHEDULED, scheduled_message, scheduled_stream

CONCERNED: Mapping[str, Concerned] = {"pod": "pod", "claim": "claim", "volume": "volume", "node": "node"}
"""Nouns that bindings are about."""
Manifest = Mapping[str, Any]
Described = dict[str, Any]


def described(look: Look, named: Named, key: str, state: State) -> Described:
    told: Described = {"object": as_manifest(named.noun, key, state)}
    if isinstance(state, ObjectState):
        told |= _about_object(look, named, key, state)
    elif isinstance(state, BindingState):
        told["steps"] = [
            {
                "position": it.position,
                "at": rfc3339(it.at),
                "stream": it.stream,
                "type": it.type,
                "by": it.actor,
            }
            for it in look.steps_of(key)
        ]
    return told


def _about_object(look: Look, named: Named, key: str, state: ObjectState) -> Described:
    manifest = state.manifest or {}
    own = uid(manifest)
    bindings: list[tuple[str, BindingState]] = []
    if named.noun in CONCERNED:
        bindings = look.bindings_of(CONCERNED[named.noun], key)
    if named.noun == "pod":
        bindings = [it for it in bindings if it[1].plan["pod_uid"] == own]
    told: Described = {}
    assumption = _assumption(look, state)
    if assumption is not None:
        told["assumption"] = assumption
    told |= _related(look, named.noun, key, state)
    told["bindings"] = [binding_told(id_, it) for id_, it in reversed(bindings)]
    if named.noun == "pod":
        tried = [it for it in look.attempts_of(key) if it[1].made["pod_uid"] == own]
        told["attempts"] = [attempt_told(id_, it) for id_, it in reversed(tried)]
    notices = [it for it in look.notices_about(f"{named.title}/{key}") if _is_about(it, own)]
    stored = {str(metadata(it).get("name", "")) for it in notices}
    events = [*map(_event, notices), *(_scheduled(bindings, stored) if named.noun == "pod" else ())]
    told["events"] = sorted(events, key=lambda it: (it["last"], it["reason"]))
    return told


# --- what is near the object ----------------------------------------------------------------------------


def _related(look: Look, noun: str, key: str, state: ObjectState) -> Described:
    manifest = state.manifest or {}
    if noun == "pod":
        return {"claims": list(_claims(look, manifest, state.rv))}
    if noun == "claim":
        return {"usedBy": [pod.key for pod in _pods(look) if any(use.key == key for use in claim_uses(pod))]}
    if noun == "node":
        return {"pods": [pod.key for pod in _pods(look) if pod.node_name == key]}
    return {}


def _pods(look: Look) -> Iterator[Pod]:
    for _, state in look.every("pod"):
        if isinstance(state, ObjectState) and state.manifest is not None:
            pod = read_object("pod", state.manifest, state.rv)
            assert isinstance(pod, Pod)
            yield pod


def _claims(look: Look, manifest: Manifest, rv: int) -> Iterator[dict[str, Any]]:
    pod = read_object("pod", manifest, rv)
    assert isinstance(pod, Pod)
    for use in claim_uses(pod):
        found = look.one("claim", use.key)
        claim = (found.manifest or {}) if isinstance(found, ObjectState) else {}
        phase = "Terminating" if is_being_deleted(claim) else status(claim).get("phase", "not found")
        yield {"claim": use.name, "phase": phase, "volume": spec(claim).get("volumeName")}


def _assumption(look: Look, state: ObjectState) -> dict[str, Any] | None:
    """What an open binding has laid over the object; of one that has ended it no longer counts."""
    held = state.assumed
    binding = None if held is None else look.one(BINDING, held.binding)
    if held is None or not isinstance(binding, BindingState) or not binding.open:
        return None
    return {"binding": held.binding, "node": binding.plan["node"], "patch": dict(held.patch)}


# --- what was decided, what was told --------------------------------------------------------------------


def _is_about(notice: Manifest, own: str) -> bool:
    """Of this object, not of an earlier one of the name."""
    about = notice.get("involvedObject", {}).get("uid")
    return not about or not own or about == own


def _event(notice: Manifest) -> dict[str, Any]:
    return {
        "type": notice.get("type", ""),
        "reason": notice.get("reason", ""),
        "first": notice.get("firstTimestamp", ""),
        "last": notice.get("lastTimestamp", ""),
        "count": notice.get("count", 1),
        "from": (notice.get("source") or {}).get("component", ""),
        "message": notice.get("message", ""),
    }


def _scheduled(bindings: list[tuple[str, BindingState]], stored: Collection[str]) -> Iterator[dict[str, Any]]:
    """That a pod was placed its binding tells for ever; the event of it expires."""
    for id_, state in bindings:
        told = scheduled_stream(state.plan["pod"], id_).rpartition("/")[2] in stored
        if state.state == Phase.COMMITTED and state.ended_at is not None and not told:
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
