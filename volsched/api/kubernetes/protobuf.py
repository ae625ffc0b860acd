"""Bodies in protobuf, as Go's clients send them, and the field numbers of the messages; answers are JSON."""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

from volsched.api.kubernetes.statuses import ApiError
from volsched.kube.documents import read_json
from volsched.kube.problems import ManifestError

# The field numbers of Kubernetes' messages, as data: `messages.json`, read once.
#
# A message is a list of fields, each `NUMBER NAME TYPE`: a plain type, another message, `[T]` for a list,
# `{T}` for a mapping with any keys. Without a name, the fields of the inner message are inlined, as in
# JSON. The numbers and names are facts of Kubernetes 1.37's API (`generated.proto`); a test
# compares the names with those that JSON has.
#
# How Go writes unset values differs by field, and the JSON must mean exactly what the client meant:
#
#     string   left out where it is zero: to Go, zero and absence are the same
#     string!  always there in JSON, zero or not
#     string?  there if it was sent, zero or not: `storageClassName: ""` is not absence

ONE, LIST, MAPPING, INLINE = "one", "list", "mapping", "inline"
_SHAPES = {"[": LIST, "{": MAPPING}
ZEROS: Mapping[str, Any] = {"string": "", "int": 0, "bool": False, "intorstring": 0, "quantity": "0"}
"""Plain types → the JSON value of a field that is always present and was not set."""


class Field(NamedTuple):
    name: str
    type: str
    """A plain type, or the name of a message."""
    shape: str = ONE
    optional: bool = False
    """Presence is known apart from the value (`?`)."""
    always: bool = False
    """Present even where it is zero (`!`)."""


Fields = Mapping[int, Field]


@cache
def _catalogue() -> tuple[Mapping[str, str], Mapping[str, Fields]]:
    catalogue = orjson.loads(files("volsched.api.kubernetes").joinpath("messages.json").read_bytes())
    return catalogue["kinds"], {name: dict(map(_field, rows)) for name, rows in catalogue["messages"].items()}


def _field(row: str) -> tuple[int, Field]:
    number, *name_part, type_and_marks = row.split(" ")
    if not name_part:
        return int(number), Field("", type_and_marks, INLINE)
    type_ = type_and_marks.rstrip("?!")
    shape = _SHAPES.get(type_[0], ONE)
    inner = type_ if shape == ONE else type_[1:-1]
    return int(number), Field(
        name_part[0], inner, shape, type_and_marks.endswith("?"), type_and_marks.endswith("!")
    )


def message_of(api_version: str, kind: str) -> str | None:
    """The message of a kind. DeleteOptions are sent under the version of the object to be deleted."""
    kinds = _catalogue()[0]
    return kinds.get(f"{api_version} {kind}") or kinds.get(kind)


def fields_of_message(name: str) -> Fields:
    return _catalogue()[1][name]


def messages() -> Mapping[str, str]:
    """`VERSION KIND`, or a kind of every version → its message."""
    return _catalogue()[0]


# Every field of a message is known by number (`messages.json`). An unknown one is refused, never skipped: an
# object that is written back would silently lose it.

MAGIC = b"k8s\x00"
UNREADABLE = "the body is not a message of Kubernetes in protobuf"
NOT_IN_PROTOBUF = 'objects of kind "{kind}" are not read in protobuf; send application/json'
UNKNOWN_FIELD = (
    "field number {number} of {message} is not known here and would be lost: the client is newer than the server; "
    "send application/json"
)
_TYPE_META, _RAW, _ENVELOPE = 1, 2, (1, 2, 3, 4)
_VERSION, _KIND = 1, 2
_KEY, _VALUE = 1, 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER, _TEXT = 0, 1
"""The type tag of an int-or-string."""


def read_message(content: bytes) -> dict[str, Any]:
    """The object as it would be in JSON; ApiError 400 where it cannot be read, 415 for unknown kinds."""
    if not content.startswith(MAGIC):
        raise ApiError(400, UNREADABLE)
    envelope = dict(_entries(content.removeprefix(MAGIC)))
    _refuse_unknown("the envelope", envelope.keys() - _ENVELOPE)
    meta = dict(_entries(_bytes(envelope.get(_TYPE_META, b""))))
    version, kind = (_text(_bytes(meta.get(number, b""))) for number in (_VERSION, _KIND))
    message = message_of(version, kind)
    if message is None:
        raise ApiError(415, NOT_IN_PROTOBUF.format(kind=kind[:80]))
    kind_fields = {name: text for name, text in (("apiVersion", version), ("kind", kind)) if text}
    return {**kind_fields, **_read(_bytes(envelope.get(_RAW, b"")), message)}


def _read(content: bytes, message: str) -> dict[str, Any]:
    fields = fields_of_message(message)
    manifest: dict[str, Any] = {field.name: ZEROS[field.type] for field in fields.values() if field.always}
    for number, raw in _entries(content):
        field = fields.get(number)
        if field is None:
            _refuse_unknown(message, {number})
        else:
            _add_field(manifest, field, raw)
    return manifest


def _add_field(manifest: dict[str, Any], field: Field, raw: int | bytes) -> None:
    if field.shape == INLINE:
        manifest.update(_read(_bytes(raw), field.type))
    elif field.shape == LIST:
        manifest.setdefault(field.name, []).append(_value(raw, field.type))
    elif field.shape == MAPPING:
        entry = dict(_entries(_bytes(raw)))
        _refuse_unknown("an entry of a mapping", entry.keys() - {_KEY, _VALUE})
        key = _text(_bytes(entry.get(_KEY, b"")))
        manifest.setdefault(field.name, {})[key] = _value(entry.get(_VALUE, b""), field.type)
    else:
        value = _value(raw, field.type)
        if isinstance(value, dict) and isinstance(manifest.get(field.name), dict):
            # A message in two parts is merged.
            manifest[field.name].update(value)
        elif field.always or (field.optional and value is not None) or value not in (None, "", 0, False, {}):
            manifest[field.name] = value
        else:
            # The last one counts.
            manifest.pop(field.name, None)


def _value(raw: int | bytes, type_: str) -> Any:
    match type_:
        case "string":
            return _text(_bytes(raw))
        case "int":
            return _signed(raw)
        case "bool":
            return bool(_signed(raw))
        case "bytes":
            return base64.b64encode(_bytes(raw)).decode()
        case "quantity":
            return _text(_bytes(_first(raw, 1, b""))) or "0"
        case "time" | "microtime":
            return _time(raw, fraction=type_ == "microtime")
        case "intorstring":
            text = _signed(_first(raw, 1, _INTEGER)) == _TEXT
            return _text(_bytes(_first(raw, 3, b""))) if text else _signed(_first(raw, 2, 0))
        case "raw":
            return _json(_bytes(_first(raw, 1, b"")))
        case _:
            return _read(_bytes(raw), type_)


def _first(raw: int | bytes, number: int, default: int | bytes) -> int | bytes:
    """The single field of a message that has a form of its own in JSON."""
    return dict(_entries(_bytes(raw))).get(number, default)


def _time(raw: int | bytes, *, fraction: bool) -> str | None:
    """None for the zero time, which is not written at all."""
    if not _bytes(raw):
        return None
    seconds, nanos = _signed(_first(raw, 1, 0)), _signed(_first(raw, 2, 0))
    try:
        at = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ApiError(400, UNREADABLE) from None
    return at.isoformat(timespec="microseconds" if fraction else "seconds").removesuffix("+00:00") + "Z"


def _json(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return read_json(raw, source="a part of the body")
    except ManifestError as error:
        raise ApiError(400, str(error)) from None


def _refuse_unknown(message: str, numbers: set[int]) -> None:
    if numbers:
        raise ApiError(415, UNKNOWN_FIELD.format(number=min(numbers), message=message))


# --- the wire -------------------------------------------------------------------------------------------


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
    if isinstance(value, bytes) or value >= 2**64:
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
