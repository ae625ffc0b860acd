"""`/openapi/v2` as the protobuf message that kubectl requests, the only form of it that kubectl reads.

kubectl validates the items of a `List` by this document; for single objects it leaves that to the server. The
numbers are those of gnostic's `OpenAPIv2.proto`, as far as our document has the fields.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
ANSWER_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The requested type is no valid media type, and kubectl refuses it in an answer."""
_SWAGGER, _INFO, _PATHS, _DEFINITIONS = 1, 2, 8, 9
_TITLE, _VERSION = 1, 2
_REF, _DESCRIPTION, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 1, 4, 21, 22, 23, 25, 31
_NAME, _VALUE = 1, 2
_ONLY = 1
"""The field of a message that wraps one thing, or a list of it."""
_YAML = 2


def document_message(document: Mapping[str, Any]) -> bytes:
    info = _text(_TITLE, document["info"]["title"]) + _text(_VERSION, document["info"]["version"])
    return (
        _text(_SWAGGER, document["swagger"])
        + _part(_INFO, info)
        + _part(_PATHS, b"")
        + _part(_DEFINITIONS, _named_schemas(document["definitions"]))
    )


def _named_schemas(schemas: Mapping[str, Any]) -> bytes:
    return b"".join(_part(_ONLY, _text(_NAME, name) + _part(_VALUE, _schema(it))) for name, it in schemas.items())


def _schema(schema: Mapping[str, Any]) -> bytes:
    return b"".join(_fields(schema))


def _fields(schema: Mapping[str, Any]) -> Iterable[bytes]:
    for name, value in schema.items():
        if name == "$ref":
            yield _text(_REF, value)
        elif name == "description":
            yield _text(_DESCRIPTION, value)
        elif name == "additionalProperties":
            yield _part(_ADDITIONAL, _part(_ONLY, _schema(value)))
        elif name == "type":
            yield _part(_TYPE, _text(_ONLY, value))
        elif name == "items":
            yield _part(_ITEMS, _part(_ONLY, _schema(value)))
        elif name == "properties":
            yield _part(_PROPERTIES, _named_schemas(value))
        elif name.startswith("x-"):
            # JSON is YAML, and YAML is how extensions are carried.
            yield _part(_EXTENSION, _text(_NAME, name) + _part(_VALUE, _text(_YAML, orjson.dumps(value).decode())))
        else:
            raise ValueError(f"the message has no field for {name}")


def _text(number: int, value: str) -> bytes:
    return _part(number, value.encode())


def _part(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
