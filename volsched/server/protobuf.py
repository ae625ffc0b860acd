"""The few messages that kubectl and Go's clients send in protobuf whatever a server says it understands.

`kubectl create namespace`, `drain` and `auth can-i` do, and none of them tries JSON when it is refused. Everything
else has more fields than are worth keeping by number, and is asked for in JSON; answers always are.

Fields have the numbers of `generated.proto` in `k8s.io/api` and `k8s.io/apimachinery`. Those that are not named
here are passed over.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from volsched.server.statuses import ApiError

MAGIC = b"k8s\x00"
UNREADABLE = "the body is not a message of Kubernetes in protobuf"
NOT_IN_PROTOBUF = 'objects of kind "{kind}" are not read in protobuf; send application/json'
TEXT, TEXTS, NUMBER, FLAG, TEXT_MAP = "text", "texts", "number", "flag", "text map"

Fields = Mapping[int, tuple[str, Any]]
"""Number → name, and what it holds: one of the above, or the fields of a message."""
_METADATA: Fields = {
    1: ("name", TEXT), 2: ("generateName", TEXT), 3: ("namespace", TEXT), 5: ("uid", TEXT),
    6: ("resourceVersion", TEXT), 11: ("labels", TEXT_MAP), 12: ("annotations", TEXT_MAP),
    14: ("finalizers", TEXTS),
}  # fmt: skip
_REFERENCE: Fields = {
    1: ("kind", TEXT), 2: ("namespace", TEXT), 3: ("name", TEXT), 4: ("uid", TEXT), 5: ("apiVersion", TEXT),
}  # fmt: skip
_ATTRIBUTES: Fields = {
    1: ("namespace", TEXT), 2: ("verb", TEXT), 3: ("group", TEXT), 4: ("version", TEXT), 5: ("resource", TEXT),
    6: ("subresource", TEXT), 7: ("name", TEXT),
}  # fmt: skip
_PATH: Fields = {1: ("path", TEXT), 2: ("verb", TEXT)}
_UNKNOWN: Fields = {1: ("typeMeta", {1: ("apiVersion", TEXT), 2: ("kind", TEXT)})}
_RAW = 2
KINDS: Mapping[str, Fields] = {
    "Namespace": {1: ("metadata", _METADATA), 2: ("spec", {1: ("finalizers", TEXTS)})},
    "Binding": {1: ("metadata", _METADATA), 2: ("target", _REFERENCE)},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", NUMBER),
        2: ("preconditions", {1: ("uid", TEXT), 2: ("resourceVersion", TEXT)}),
        3: ("orphanDependents", FLAG),
        4: ("propagationPolicy", TEXT),
        5: ("dryRun", TEXTS),
    },
    "SelfSubjectAccessReview": {
        1: ("metadata", _METADATA),
        2: ("spec", {1: ("resourceAttributes", _ATTRIBUTES), 2: ("nonResourceAttributes", _PATH)}),
    },
    "SelfSubjectRulesReview": {1: ("metadata", _METADATA), 2: ("spec", {1: ("namespace", TEXT)})},
    "SelfSubjectReview": {1: ("metadata", _METADATA)},
}


def read_message(content: bytes) -> dict[str, Any]:
    """The object as it would be in JSON; ApiError 400 where it cannot be read, 415 for kinds that are not read."""
    if not content.startswith(MAGIC):
        raise ApiError(400, UNREADABLE)
    envelope = content.removeprefix(MAGIC)
    meta = _read(envelope, _UNKNOWN).get("typeMeta", {})
    fields = KINDS.get(meta.get("kind", ""))
    if fields is None:
        raise ApiError(415, NOT_IN_PROTOBUF.format(kind=meta.get("kind", "")[:80]))
    raw = next((value for number, value in _entries(envelope) if number == _RAW), b"")
    return {**meta, **_read(_bytes(raw), fields)}


def _read(message: bytes, fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _entries(message):
        if number not in fields:
            continue
        name, holds = fields[number]
        if holds == NUMBER:
            found[name] = _signed(value)
        elif holds == FLAG:
            found[name] = bool(_signed(value))
        elif holds == TEXT:
            # What is not set is written all the same, as nothing.
            if text := _text(_bytes(value)):
                found[name] = text
        elif holds == TEXTS:
            found.setdefault(name, []).append(_text(_bytes(value)))
        elif holds == TEXT_MAP:
            entry = {key: _text(_bytes(it)) for key, it in _entries(_bytes(value))}
            found.setdefault(name, {})[entry.get(1, "")] = entry.get(2, "")
        else:
            found.setdefault(name, {}).update(_read(_bytes(value), holds))
    return found


def _entries(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        match key & 7:
            case 0:
                value, place = _number(message, place)
                yield key >> 3, value
            case 2:
                length, place = _number(message, place)
                if place + length > len(message):
                    raise ApiError(400, UNREADABLE)
                yield key >> 3, message[place : place + length]
                place += length
            case _:
                raise ApiError(400, UNREADABLE)


def _number(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        value, place = value | (byte & 0x7F) << shift, place + 1
        if byte < 0x80:
            return value, place
    raise ApiError(400, UNREADABLE)


def _signed(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ApiError(400, UNREADABLE)
    return value - 2**64 if value >= 2**63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ApiError(400, UNREADABLE)
    return value


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise ApiError(400, UNREADABLE) from None
    if "\0" in text:
        raise ApiError(400, "a text holds a NUL character, which no database keeps")
    return text
