"""JSONPath as in kubectl: templates for `-o jsonpath=`, and single paths for sorting and for columns.

`{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\\n"}{end}`, `[0]`, `[-1]`, `[0:2]`, `['a','b']`,
`..name`, `[?(@.type=="Ready")]`. A missing value is empty, as in kubectl.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any], Iterator[Any]]
Path = tuple[Step, ...]
_TOKEN = re.compile(
    r"""\s*(?:
    \.\.(?P<below>[\w*-]+)
    | \.?\[\s*(?P<index>-?\d+)\s*\]
    | \.?\[\s*(?P<first>-?\d*)\s*:\s*(?P<last>-?\d*)\s*\]
    | \.?\[\s*\*\s*\]
    | \.?\[\s*(?P<names>(?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\s*\]
    | \.?\[\s*\?\(\s*(?P<test>.*?)\s*\)\s*\]
    | \.?(?P<name>(?:\\.|[^.\[\]{}\s'"()?*\\])+)
    | \.?(?P<every>\*)
    )""",
    re.X,
)
_TEST = re.compile(r"@(?P<path>[^=!<>]*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>.+))?")
_BLOCK = re.compile(r"\{(?P<code>(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^{}])*)\}")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


class JsonPathError(ValueError):
    """The text is not a path or template; the message names the wrong part and gives an example."""


@dataclass(frozen=True, slots=True)
class TemplateLoop:
    path: Path
    body: "Template"


Template = tuple[str | Path | TemplateLoop, ...]


def parse_path(text: str) -> Path:
    """One path, also without braces or the first dot: `metadata.name`."""
    bare = text.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1].strip()
    path = _path(bare.removeprefix("$").removeprefix("@"))
    if not path:
        raise JsonPathError(f'"{text[:80]}" names no field; write a path such as .metadata.name')
    return path


def values_at(path: Path, document: Any) -> list[Any]:
    values = [document]
    for step in path:
        values = [found for value in values for found in step(value)]
    return values


def parse_template(text: str) -> Template:
    if "{" not in text:
        return (parse_path(text),)
    words = list(_words(text))
    template, rest = _template(words)
    if rest:
        raise JsonPathError("{end} without a {range}; remove it")
    return template


def rendered(template: Template, document: Any) -> str:
    parts: list[str] = []
    for part in template:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, TemplateLoop):
            parts += [rendered(part.body, it) for it in values_at(part.path, document)]
        else:
            parts.append(" ".join(map(shown_value, values_at(part, document))))
    return "".join(parts)


def shown_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _words(text: str) -> Iterator[str]:
    """Text between braces as a quoted string, and the code within them."""
    place = 0
    for block in _BLOCK.finditer(text):
        if block.start() > place:
            yield json.dumps(_literal(text[place : block.start()], text))
        yield block["code"].strip()
        place = block.end()
    if place < len(text):
        yield json.dumps(_literal(text[place:], text))


def _literal(part: str, text: str) -> str:
    if "{" in part or "}" in part:
        raise JsonPathError(f'"{text[:80]}" has a brace that is not closed; write {{.metadata.name}}')
    return part


def _template(words: Sequence[str], *, inside: bool = False) -> tuple[Template, Sequence[str]]:
    parts: list[str | Path | TemplateLoop] = []
    while words:
        word, *words = words
        if word == "end":
            return tuple(parts), (words if inside else ["end"])
        if word.startswith("range"):
            body, words = _template(words, inside=True)
            parts.append(TemplateLoop(parse_path(word.removeprefix("range")), body))
        elif word[:1] in ('"', "'"):
            parts.append(_unquoted(word))
        elif word in ("", "$", "@", "."):
            parts.append(())
        else:
            parts.append(parse_path(word))
    if inside:
        raise JsonPathError("{range} without an {end}; add {end}")
    return tuple(parts), ()


def _unquoted(word: str) -> str:
    text = word if word.startswith('"') else '"' + word[1:-1].replace('"', '\\"') + '"'
    try:
        return str(json.loads(text))
    except ValueError:
        raise JsonPathError(f'{word[:80]} is not a string; write {{"\\n"}}') from None


def _path(text: str) -> Path:
    steps: list[Step] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.end() == place:
            rest = text[place:]
            if rest.strip() in ("", "."):
                break
            raise JsonPathError(
                f'"{text[:80]}" is not a path from "{rest[:20]}" on; write one such as .spec.claimRef.name, '
                "[0], [*] or ['a.b/c']"
            )
        steps.append(_step(match))
        place = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["below"] is not None:
        return _below(match["below"])
    if match["index"] is not None:
        return _item(int(match["index"]))
    if match["first"] is not None:
        return _slice(int(match["first"] or 0), int(match["last"]) if match["last"] else None)
    if match["names"] is not None:
        return _fields([it[1:-1] for it in re.findall(r"'[^']*'|\"[^\"]*\"", match["names"])])
    if match["test"] is not None:
        return _chosen(match["test"])
    if match["name"] is not None:
        return _fields([re.sub(r"\\(.)", r"\1", match["name"])])
    return _children


def _fields(names: Sequence[str]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            yield from (value[it] for it in names if it in value)

    return step


def _children(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _item(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(first: int, last: int | None) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[first:last]

    return step


def _below(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping) and name != "*" and name in value:
            yield value[name]
        for child in _children(value):
            if name == "*":
                yield child
            yield from step(child)

    return step


def _chosen(test: str) -> Step:
    match = _TEST.fullmatch(test)
    if match is None:
        raise JsonPathError(f'"{test[:80]}" is not a filter; write [?(@.type=="Ready")]')
    path = _path(match["path"])
    wanted = _compared_value(match["value"])
    compare = _COMPARE[match["operator"]] if match["operator"] else None

    def holds(value: Any) -> bool:
        values = values_at(path, value)
        if compare is None:
            return bool(values)
        return any(type(it) is type(wanted) and compare(it, wanted) for it in values)

    def step(value: Any) -> Iterator[Any]:
        yield from (it for it in _children(value) if holds(it))

    return step


def _compared_value(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return _unquoted(text) if text[:1] in ('"', "'") else json.loads(text)
    except ValueError:
        return text
