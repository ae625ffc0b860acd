"""An event as a short text: the changes of its merge patch, and the reason."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from volsched.kube.problems import shortened
from volsched.log.events.catalogue import CATALOGUE, StateChange
from volsched.log.events.envelope import REDACTION, Event, upcast
from volsched.log.events.fold import ObjectState
from volsched.log.events.streams import noun_and_key
from volsched.runtime.clock import rfc3339

Data = Mapping[str, Any]
PARTS_SHOWN = 6
LONGEST_VALUE = 60
LONGEST_MESSAGE = 200
REFERENCES = frozenset({"claimRef", "involvedObject"})
"""Fields of a manifest that refer to an object, shown as its name."""
OWNERS = "metadata.managedFields"
"""Owners of fields: bookkeeping of server-side apply, not a change of the object."""
SHORTER = {"metadata.annotations": "annotation ", "metadata.labels": "label "}


def words_of(event: Event) -> str:
    """The event as text; one that only a later program knows is shown by its type alone."""
    entry = CATALOGUE.get(event.type)
    if entry is None or event.schema > entry.schema:
        return event.type
    words = _WORDS_OF_TYPE.get(event.type) or _WORDS[entry.change]
    return words(_data(event))


def reason_of(event: Event) -> str | None:
    data, entry = _data(event), CATALOGUE.get(event.type)
    is_known = entry is not None and event.schema <= entry.schema
    if is_known and event.type == "AttemptFailed":
        return ": ".join(filter(None, (data["message"], data.get("words"))))
    if isinstance(data.get("reason"), str):
        return str(data["reason"])
    if is_known and event.type == "AttemptMade":
        return str(data["detail"].get("message")) or None
    return None


def _data(event: Event) -> Data:
    return upcast(event.type, event.schema, orjson.loads(event.data))


def subject_of(event: Event) -> str:
    noun, key = noun_and_key(event.stream)
    return f"{noun} {key}"


def patch_words(patch: Data) -> str:
    """`spec.claimRef=default/data, status.phase=Bound`; removals are shown too, and long lists are cut."""
    parts = [_part(path, value) for path, value in _leaves(patch) if path != OWNERS]
    if not parts and OWNERS.split(".")[1] in patch.get("metadata", {}):
        return "owners of fields"
    more = len(parts) - PARTS_SHOWN
    return ", ".join(parts[:PARTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def change_words(before: ObjectState | None, after: ObjectState | None, patch: Data) -> str:
    """The changes of an object between two moments, as text."""
    if after is None or after.manifest is None:
        return "deleted"
    return patch_words(patch) if before is not None and before.manifest is not None else "created"


def _leaves(patch: Data, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in patch.items():
        path = f"{above}{key}"
        if isinstance(value, dict) and value and key not in REFERENCES:
            yield from _leaves(value, SHORTER.get(path, f"{path}."))
        else:
            yield path, value


def _part(path: str, value: Any) -> str:
    if value is None:
        return f"{path} removed"
    if isinstance(value, list) and value and all(isinstance(it, dict) and "status" in it for it in value):
        return "; ".join(map(_condition, value))
    return f"{path}={_value(value)}"


def _condition(condition: Data) -> str:
    """`PodScheduled=False (Unschedulable): 0/3 nodes are available`."""
    reason = f" ({condition['reason']})" if condition.get("reason") else ""
    message = f": {shortened(str(condition['message']), LONGEST_MESSAGE)}" if condition.get("message") else ""
    return f"{condition.get('type')}={condition['status']}{reason}{message}"


def _value(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:
        return "/".join(str(value[it]) for it in ("namespace", "name") if value.get(it))
    if isinstance(value, list) and value and all(isinstance(it, dict) and "name" in it for it in value):
        return shortened(", ".join(str(it["name"]) for it in value), LONGEST_VALUE)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return shortened(text, LONGEST_VALUE)


def _plan_words(data: Data) -> str:
    legs = ", ".join(f"{it['claim']} → {it.get('volume') or 'a new volume'}" for it in data["legs"])
    return f"planned for pod {data['pod']} on {data['node']}" + (f": {legs}" if legs else "")


def _move_words(data: Data) -> str:
    until = f" until {rfc3339(data['deadline'])}" if data.get("deadline") is not None else ""
    return f"binding {data['state']}{until}"


def _leg_words(data: Data) -> str:
    volume = f" with {data['volume']}" if data.get("volume") else ""
    return f"leg {data['leg']} {data['state']}{volume}"


def _attempt_words(data: Data) -> str:
    where = f" on {data['node']}" if data.get("node") else ""
    return f"attempt for pod {data['pod']}: {data['outcome']}{where}"


def _token_words(data: Data) -> str:
    where = f" in {', '.join(data['namespaces'])}" if data.get("namespaces") is not None else ""
    return f"token issued: {', '.join(data['roles'])}{where}"


def _gap_words(data: Data) -> str:
    since = f"since {rfc3339(data['since'])}" if data.get("since") is not None else "for an unknown time"
    return f"gap: {data['kind']} was not observed {since}; what changed in that time is not known"


def _redaction_words(data: Data) -> str:
    what, count = " and ".join(data["what"]), len(data["seals"])
    return f"redacted the {what} of {count} events between {data['first']} and {data['last']}"


_WORDS_OF_TYPE: Mapping[str, Callable[[Data], str]] = {
    "EffectNoted": lambda data: f"effect {data['effect']} {data['done']}",
    REDACTION: _redaction_words,
    "ClusterAttached": lambda data: f"observes cluster {data['uid']} at {data['url']}",
    "MirrorGap": _gap_words,
    "ClusterRestored": lambda data: (
        f"the cluster was restored from a backup: version {data['before']} became {data['after']}"
    ),
    "MirrorDrift": lambda data: (
        f"{data['kind']} differed from the cluster: {len(data['missing'])} missing, "
        f"{len(data['left_over'])} left over, {len(data['stale'])} stale"
    ),
}
"""Of types that leave no state: what they note differs from type to type."""
_WORDS: Mapping[StateChange, Callable[[Data], str]] = {
    StateChange.CREATE: lambda _: "created",
    StateChange.PATCH: lambda data: patch_words(data["patch"]) or "nothing changed",
    StateChange.DELETE: lambda _: "deleted",
    StateChange.ASSUME: lambda data: f"assumed: {patch_words(data['patch'])}",
    StateChange.FREE: lambda _: "assumption taken off",
    StateChange.PLAN: _plan_words,
    StateChange.MOVE_BINDING: _move_words,
    StateChange.MOVE_LEG: _leg_words,
    StateChange.ATTEMPT: _attempt_words,
    StateChange.FAIL: lambda data: f"attempt failed in {data['stage']}: {data.get('claim') or 'the pod'}",
    StateChange.REPEAT: lambda _: "attempt repeated with the same outcome",
    StateChange.ISSUE: _token_words,
    StateChange.REVOKE: lambda _: "token revoked",
    StateChange.ASK: lambda data: f"asked: {data['question']}",
    StateChange.TAKE_AWAY: lambda data: f"lease taken from {data['holder']}",
    StateChange.CORRECT: lambda data: (
        f"the log's time goes back by {(data['before'] - data['after']) // 1_000_000} s"
    ),
}
