"""The field numbers of Kubernetes' messages, as data: `messages.json`, read once.

A message is a list of fields, each `NUMBER NAME TYPE`: a plain type, another message, `[T]` for a list, `{T}` for
a mapping with any keys. Without a name, what the message below it holds stands among the fields themselves, as in
JSON. The numbers and names are facts of Kubernetes 1.37's API (`generated.proto`); a test compares the names with
those that JSON has.

How Go writes what is not set differs by field, and JSON must not tell more or less than the client meant:

    string   left out where it is zero: to Go, zero and absence are the same
    string!  always there in JSON, zero or not
    string?  there if it was sent, zero or not: `storageClassName: ""` is not silence
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import orjson

ONE, LIST, MAPPING, INLINE = "one", "list", "mapping", "inline"
_SHAPES = {"[": LIST, "{": MAPPING}
ZEROS: Mapping[str, Any] = {"string": "", "int": 0, "bool": False, "intorstring": 0, "quantity": "0"}
"""Plain types → what JSON shows of a field that is always there and was not set."""


class Field(NamedTuple):
    name: str
    type: str
    """A plain type, or the name of a message."""
    shape: str = ONE
    optional: bool = False
    """Set or not is known apart from the value (`?`)."""
    always: bool = False
    """Shown where it is zero too (`!`)."""


Fields = Mapping[int, Field]


@cache
def _catalogue() -> tuple[Mapping[str, str], Mapping[str, Fields]]:
    read = orjson.loads(files("volsched.api.kubernetes").joinpath("messages.json").read_bytes())
    return read["kinds"], {name: dict(map(_field, rows)) for name, rows in read["messages"].items()}


def _field(row: str) -> tuple[int, Field]:
    number, *named, holds = row.split(" ")
    if not named:
        return int(number), Field("", holds, INLINE)
    type_ = holds.rstrip("?!")
    shape = _SHAPES.get(type_[0], ONE)
    inner = type_ if shape == ONE else type_[1:-1]
    return int(number), Field(named[0], inner, shape, holds.endswith("?"), holds.endswith("!"))


def message_of(api_version: str, kind: str) -> str | None:
    """The message of a kind. Options of a deletion are sent under the version of what is to be deleted."""
    kinds = _catalogue()[0]
    return kinds.get(f"{api_version} {kind}") or kinds.get(kind)


def fields_of_message(name: str) -> Fields:
    return _catalogue()[1][name]


def messages() -> Mapping[str, str]:
    """`VERSION KIND`, or a kind of every version → its message."""
    return _catalogue()[0]
