"""Bytes to plain values: the YAML or JSON of a manifest, safe against hostile input.

Nulls are dropped from mappings, because a stored merge patch reads null as "remove". A null inside a list is left
to the caller, which can name the object that holds it.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from volsched.kube.problems import (
    BYTES_MAX,
    DEPTH_MAX,
    ManifestError,
    Path,
    Place,
    Problem,
    UnfitError,
    checked_text,
    is_deeper,
    real_number,
    too_deep,
    value_text,
    whole_number,
)
from volsched.kube.yaml_values import YamlSyntaxError, yaml_values

_JSON_BLANK = re.compile(r"[ \t\r\n]*")
_JSON_START = re.compile(r"\s*[\[{]")
_SUSPECT_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_HOLDERS = (dict, list)
_FOREIGN_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


@dataclass(frozen=True, slots=True)
class Document:
    """`number` counts from 1 and includes empty documents, as an editor does."""

    number: int
    value: Any


def read_documents(data: bytes, *, source: str) -> list[Document]:
    """Every document that is not empty; raises ManifestError, marked unreadable, and nothing else."""
    try:
        text = _text(data)
    except UnfitError as error:
        raise ManifestError([Problem(Place(source), "", error.defect)], unreadable=True) from None
    documents: list[Document] = []
    number = 0
    try:
        for number, value in enumerate(_values(text), start=1):
            if value is not None:
                documents.append(Document(number, value))
    except UnfitError as error:
        problem = Problem(Place(source, number + 1), "", error.defect)
        raise ManifestError([problem], unreadable=True) from None
    return documents


def read_json(data: bytes, *, source: str, nulls: bool = False) -> Any:
    """The one value of an input that must be JSON; raises as `read_documents` does.

    `nulls` leaves them where they are: in a patch, null removes a field.
    """
    try:
        values = list(_json_values(_text(data), nulls=nulls))
        if len(values) != 1:
            raise UnfitError(f"the input holds {len(values)} JSON values; send one")
    except json.JSONDecodeError as error:
        defect = UnfitError(f"this is not JSON (line {error.lineno}, column {error.colno}: {error.msg})").defect
        raise ManifestError([Problem(Place(source), "", defect)], unreadable=True) from None
    except UnfitError as error:
        raise ManifestError([Problem(Place(source), "", error.defect)], unreadable=True) from None
    return values[0]


def drop_nulls(value: Any) -> Any:
    """The value without fields that are null, as Go writes absent ones. A null in a list stays where it is."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    return [drop_nulls(item) for item in value] if isinstance(value, list) else value


def null_items(value: Any) -> list[Path]:
    """The places of nulls in lists."""
    return list(_null_places(value)) if _holds_null(value) else []


def _holds_null(value: Any) -> bool:
    """A quick check: the answer is usually no, without the cost of collecting every path."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        inner = holder.values() if isinstance(holder, dict) else holder
        if None in inner:
            return True
        waiting += [item for item in inner if isinstance(item, _HOLDERS)]
    return False


def _null_places(value: Any) -> Iterator[Path]:
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, holder = waiting.pop()
        steps: Iterable[tuple[str | int, Any]]
        steps = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for step, inner in steps:
            if inner is None:
                yield (*path, step)
            elif isinstance(inner, _HOLDERS):
                waiting.append(((*path, step), inner))


_GZIP = b"\x1f\x8b"


def _text(data: bytes) -> str:
    if len(data) > BYTES_MAX:
        raise UnfitError(f"the input is larger than {BYTES_MAX // 2**20} MiB; split it")
    if data.startswith(_FOREIGN_BOMS):
        raise UnfitError("the input is not UTF-8 but UTF-16 or UTF-32; save it as UTF-8")
    if data.startswith(_GZIP):
        raise UnfitError("the input is compressed with gzip; unpack it first (tar -xzf, or gunzip)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise UnfitError(f"the input is not UTF-8 text: {found}; save it as UTF-8") from None
    nul = text.find("\0")
    if nul >= 0:
        raise UnfitError(f"the input is not text: NUL character at offset {nul}; remove it")
    return text


def _values(text: str) -> Iterator[Any]:
    if _JSON_START.match(text) is None:
        yield from yaml_values(text)
        return
    values: list[Any] = []
    refusal: UnfitError | None = None
    # Nothing is yielded before the end, because input that turns out not to be JSON is read again as YAML.
    try:
        values.extend(_json_values(text))
    except json.JSONDecodeError as error:
        yield from _flow_values(text, error)
        return
    except UnfitError as error:
        refusal = error
    yield from values
    if refusal is not None:
        raise refusal


def _flow_values(text: str, json_error: json.JSONDecodeError) -> Iterator[Any]:
    """YAML that starts like JSON: its flow style."""
    try:
        yield from yaml_values(text)
    except YamlSyntaxError as error:
        where = f"line {json_error.lineno}, column {json_error.colno}"
        raise UnfitError(f"this is neither JSON ({where}: {json_error.msg}) nor YAML ({error.reason})") from None


# --- JSON -----------------------------------------------------------------------------------------------


def _json_values(text: str, *, nulls: bool = False) -> Iterator[Any]:
    """JSON values one after the other, as kubectl reads them."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_checked_mapping if nulls else _json_mapping,
        parse_int=whole_number,
        parse_float=real_number,
        parse_constant=real_number,
    )
    # The hooks never see strings, and checking each afterwards costs more than reading them.
    suspect = _SUSPECT_ESCAPE.search(text) is not None
    end = _blank_end(text, 0)
    while end < len(text):
        try:
            value, end = decoder.raw_decode(text, end)
        except RecursionError:
            raise too_deep() from None
        if is_deeper(value, DEPTH_MAX):
            raise too_deep()
        if suspect:
            _check_texts(value)
        yield value
        end = _blank_end(text, end)


def _blank_end(text: str, start: int) -> int:
    blank = _JSON_BLANK.match(text, start)
    return blank.end() if blank else start


def _checked_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = value_text(_first_repeated(pairs))
        raise UnfitError(f"the key {twice} appears twice in one mapping; remove one of the two")
    return mapping


def _json_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = _checked_mapping(pairs)
    if None in mapping.values():
        return {key: value for key, value in pairs if value is not None}
    return mapping


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    met: set[str] = set()
    for key, _ in pairs:
        if key in met:
            return key
        met.add(key)
    raise AssertionError("every key appears once")


def _check_texts(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            checked_text(item)
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


# Helm's output for a release (`helm install --dry-run`, `helm get all`): its manifest between a head and notes.
#
# Only the manifest is read: hooks are temporary, and notes are prose that need not be YAML.


_HEAD = re.compile(rb"^NAME: ", re.MULTILINE)
_HEAD_BYTES = 1000
"""The head must begin within these bytes: `helm upgrade` prints a greeting first, and a plain manifest may contain
such a line later on."""
_MANIFEST = re.compile(rb"^MANIFEST:[ \t]*\r?$", re.MULTILINE)
_NOTES = re.compile(rb"^NOTES:[ \t]*\r?$", re.MULTILINE)
_NAMESPACE = re.compile(rb"^NAMESPACE: (\S+)", re.MULTILINE)
_OTHER_LINE = re.compile(rb"^(?!---).+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HelmRelease:
    manifest: bytes
    """The manifest with every line at its place in the input, so that errors name the right line."""
    namespace: str
    """The namespace that Helm would give to objects without one."""


def helm_release(data: bytes) -> HelmRelease | None:
    """The release in Helm's output; None where the input is no such output."""
    head = _HEAD.search(data, 0, _HEAD_BYTES)
    begin = _MANIFEST.search(data, head.end()) if head else None
    if head is None or begin is None:
        return None
    end = _NOTES.search(data, begin.end())
    last = end.start() if end else len(data)
    namespace = _NAMESPACE.search(data, head.start(), begin.start())
    return HelmRelease(
        _OTHER_LINE.sub(b"", data[: begin.end()]) + data[begin.end() : last],
        namespace[1].decode(errors="replace") if namespace else "",
    )
