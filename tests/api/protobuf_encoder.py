"""Manifests as Go's clients send them: the same table as the reader's, the other way round."""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from volsched.api.kubernetes.protobuf import INLINE, LIST, MAGIC, MAPPING, Field, fields_of_message, message_of

PROTOBUF = "application/vnd.kubernetes.protobuf"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def enveloped(kind: str, raw: bytes, version: str = "v1") -> bytes:
    return MAGIC + field(1, field(1, version) + field(2, kind)) + field(2, raw) + field(3, "") + field(4, "")


def encoded(manifest: Mapping[str, Any]) -> bytes:
    """KeyError for a field that the table does not have."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    message = message_of(version, kind)
    assert message is not None, f"{version} {kind}"
    content = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind")}
    return enveloped(kind, encoded_message(content, message), version)


def encoded_message(manifest: Mapping[str, Any], message: str) -> bytes:
    left = dict(manifest)
    content = b"".join(_fields(left, message))
    if left:
        raise KeyError(f"{message} has no {', '.join(left)}")
    return content


def _fields(left: dict[str, Any], message: str) -> Iterator[bytes]:
    """As Go does: plain fields are written even where they are zero. What is written is taken out of `left`."""
    for number, it in fields_of_message(message).items():
        if it.shape == INLINE:
            yield field(number, b"".join(_fields(left, it.type)))
        elif it.name in left:
            yield from _written(number, it, left.pop(it.name))
        elif it.shape not in (LIST, MAPPING) and not it.optional:
            yield field(number, _nothing(it.type))


def _nothing(type_: str) -> bytes | int:
    """A plain field that is not set; a message that is always there, with all that is always there in it."""
    if type_ in ("int", "bool"):
        return 0
    return encoded_message({}, type_) if "." in type_ else b""


def _written(number: int, it: Field, value: Any) -> Iterator[bytes]:
    if it.shape == LIST:
        yield from (field(number, _value(item, it.type)) for item in value)
    elif it.shape == MAPPING:
        for key in sorted(value):
            yield field(number, field(1, key) + field(2, _value(value[key], it.type)))
    else:
        yield field(number, _value(value, it.type))


def _value(value: Any, type_: str) -> bytes | str | int:
    match type_:
        case "string":
            return str(value)
        case "int" | "bool":
            return int(value)
        case "bytes":
            return base64.b64decode(value)
        case "quantity":
            return field(1, str(value))
        case "time" | "microtime":
            at = datetime.fromisoformat(value) - _EPOCH
            return field(1, at // timedelta(seconds=1)) + field(2, at.microseconds * 1000)
        case "intorstring":
            text = isinstance(value, str)
            return field(1, int(text)) + field(2, 0 if text else value) + field(3, value if text else "")
        case "raw":
            return field(1, orjson.dumps(value))
        case _:
            return encoded_message(value, type_)
