"""Parses YAML from PyYAML's event stream, and writes YAML that all parsers read as the same values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from volsched.kube.display_text import is_visible
from volsched.kube.problems import (
    DEPTH_MAX,
    REPEATED_MAX,
    Path,
    UnfitError,
    checked_text,
    real_number,
    too_deep,
    value_text,
    whole_number,
)

# PyYAML's own composers are not used: the C one overflows the process's stack on deep nesting, and both
# expand aliases without bound. The event stream does neither. Scalars resolve as in YAML 1.1, which PyYAML
# and kubectl share, with two exceptions that follow kubectl: timestamps and base-60 numbers stay strings.

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (_TAG + name for name in ("null", "bool", "int", "float", "str"))
_MERGE = "<<"
_TRUE = frozenset({"yes", "true", "on"})
_BOOLEANS = _TRUE | {"no", "false", "off"}
_BASES = {"0b": 2, "0x": 16}

_RESOLVERS = {
    first: tuple((tag, pattern) for tag, pattern in resolvers if tag in (_NULL, _BOOL, _INT, _FLOAT))
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class YamlSyntaxError(UnfitError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"this is not YAML: {reason}")
        self.reason = reason


def yaml_values(text: str) -> Iterator[Any]:
    """The value of each document, None for an empty one; raises UnfitError and nothing else."""
    events = _events(text)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            yield _Builder().build(events)


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlSyntaxError(where + " ".join(str(error.problem or error.context).split())) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlSyntaxError(" ".join(str(error).split())) from None


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with the cost of repeating it: the number of values it holds, and its depth."""

    value: Any
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet."""

    value: Any
    anchor: str | None
    key: str | None = None
    merging: bool = False
    keys: set[str] = field(default_factory=set)
    merged: dict[str, Any] = field(default_factory=dict)
    size: int = 1
    height: int = 1

    def closed(self) -> _Node:
        if not self.merged:
            return _Node(self.value, self.size, self.height)
        # A key that the mapping itself holds wins, also when its null removed it.
        merged = {key: value for key, value in self.merged.items() if key not in self.keys}
        return _Node({**merged, **self.value}, self.size, self.height)


@dataclass(slots=True)
class _Builder:
    """One document under construction."""

    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, _Node] = field(default_factory=dict)
    repeated: int = 0

    def build(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            try:
                node = self._node(event)
                if node is None:
                    continue
                if not self.stack:
                    return node.value
                self._add(node, plain=isinstance(event, yaml.ScalarEvent) and event.implicit[0])
            except UnfitError as error:
                raise (
                    error if error.defect.path else self._unfit(str(error), excerpt=error.defect.excerpt)
                ) from None
        raise YamlSyntaxError("the document has no end")

    def _node(self, event: yaml.Event) -> _Node | None:
        """The node that this event completes, if any."""
        if isinstance(event, yaml.ScalarEvent):
            node = _Node(_scalar(event.value, event.tag, plain=event.implicit[0]))
            if event.anchor is not None:
                self.anchors[event.anchor] = node
            return node
        if isinstance(event, yaml.AliasEvent):
            return self._repeat(event.anchor or "")
        if isinstance(event, yaml.MappingStartEvent):
            self._open(event, {}, tag=f"{_TAG}map")
            return None
        if isinstance(event, yaml.SequenceStartEvent):
            self._open(event, [], tag=f"{_TAG}seq")
            return None
        closing = self.stack.pop()
        node = closing.closed()
        if closing.anchor is not None:
            self.anchors[closing.anchor] = node
        return node

    def _open(self, event: yaml.CollectionStartEvent, value: Any, *, tag: str) -> None:
        if event.tag not in (None, "!", tag):
            raise UnfitError(_foreign_tag(str(event.tag)))
        if len(self.stack) >= DEPTH_MAX:
            raise too_deep(self._path())
        if event.anchor is not None:
            # From here on the anchor names this collection, which cannot be repeated before it ends.
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Open(value, event.anchor))

    def _repeat(self, anchor: str) -> _Node:
        node = self.anchors.get(anchor)
        if node is None:
            if any(opened.anchor == anchor for opened in self.stack):
                raise UnfitError(f"the alias *{anchor} is inside the value that it repeats; write it out")
            raise UnfitError(f"the alias *{anchor} repeats no value; mark a value before it with &{anchor}")
        if len(self.stack) + node.height > DEPTH_MAX:
            raise too_deep(self._path())
        self._count(node.size)
        return node

    def _count(self, size: int) -> None:
        self.repeated += size
        if self.repeated > REPEATED_MAX:
            raise UnfitError(f"aliases repeat more than {REPEATED_MAX} values; write the objects out")

    def _add(self, node: _Node, *, plain: bool) -> None:
        holder = self.stack[-1]
        if isinstance(holder.value, list):
            holder.value.append(node.value)
        elif holder.merging:
            holder.merging = False
            self._merge(holder, node)
        elif holder.key is None:
            if plain and node.value == _MERGE:
                holder.merging = True
                return
            holder.key = _key(node.value)
            if holder.key in holder.keys:
                raise UnfitError("appears twice in one mapping; remove one of the two")
            holder.keys.add(holder.key)
            return
        else:
            if node.value is not None:
                holder.value[holder.key] = node.value
            holder.key = None
        holder.size += node.size
        holder.height = max(holder.height, node.height + 1)

    def _merge(self, holder: _Open, node: _Node) -> None:
        sources = node.value if isinstance(node.value, list) else [node.value]
        if not all(isinstance(source, dict) for source in sources):
            raise UnfitError(
                "the merge key << takes a mapping or a list of mappings", excerpt=value_text(node.value)
            )
        for source in sources:
            for key, value in source.items():
                holder.merged.setdefault(key, value)

    def _path(self) -> Path:
        steps = (opened.key if isinstance(opened.value, dict) else len(opened.value) for opened in self.stack)
        return tuple(step for step in steps if step is not None)

    def _unfit(self, message: str, *, excerpt: str) -> UnfitError:
        return UnfitError(message, path=self._path(), excerpt=excerpt)


def _key(value: Any) -> str:
    """Keys are strings in JSON; kubectl writes the others as JSON would."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise UnfitError("is not a key that a manifest can have; use a string", excerpt=value_text(value))


def _scalar(text: str, tag: str | None, *, plain: bool) -> Any:
    if plain:
        return _resolved(text)
    if tag in (None, "!", _STR):
        return checked_text(text)
    try:
        value = _converted(text, str(tag))
    except ValueError:
        raise UnfitError(f"does not match its tag {tag}; remove the tag", excerpt=value_text(text)) from None
    return value


def _resolved(text: str) -> Any:
    for tag, pattern in _RESOLVERS.get(text[:1], ()):
        if pattern.match(text) and ":" not in text:
            try:
                return _converted(text, tag)
            except ValueError:
                # The resolver's patterns also match a few texts without digits, such as 0x_.
                return checked_text(text)
    return checked_text(text)


def _converted(text: str, tag: str) -> Any:
    """The text read by its tag; ValueError where it does not fit."""
    if tag == _NULL:
        return None
    if tag == _BOOL:
        if text.lower() not in _BOOLEANS:
            raise ValueError
        return text.lower() in _TRUE
    if tag == _INT:
        return _integer(text.replace("_", ""))
    if tag == _FLOAT:
        return real_number(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise UnfitError(_foreign_tag(tag))


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits[:2] in _BASES:
        return sign * whole_number(digits[2:], _BASES[digits[:2]])
    return sign * whole_number(digits, 8 if digits.startswith("0") else 10)


def _foreign_tag(tag: str) -> str:
    name = tag.replace(_TAG, "!!")
    return f"the tag {name} is not one that a manifest can have; remove it and write plain text, numbers and lists"


# Plain values to YAML that every reader reads as the same values.

_DUMPER = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
_WIDTH = 4096
# Text that YAML 1.2 readers, or kubectl's, read as a number, a boolean or null although YAML 1.1 does not.
_AMBIGUOUS = re.compile(r"[-+]?(?:\.?[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|0[oO][0-7]+)|[yYnN]")


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes repeated values out, since anchors obscure a manifest, and quotes ambiguous text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Invisible characters are shown as escapes, which are parsed only between double quotes.
    style = '"' if not is_visible(text) else "'" if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(values: Iterable[Mapping[str, Any]]) -> str:
    text: str = yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=True,
        width=_WIDTH,
    )
    return text
