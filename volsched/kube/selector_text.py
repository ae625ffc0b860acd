"""Label selectors as people write them behind `-l`: `tier=db,zone in (a,b),!draining`."""

import re

from volsched.kube.selectors import LabelSelector, Requirement, label_selector_problem

_SET = re.compile(r"(?P<key>[^\s=!,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s=!,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s=!,()]+)")
_COMMA = re.compile(r"\s*(?:,\s*|$)")
SYNTAX = "write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, with commas between them"


class SelectorTextError(ValueError):
    """The text is not a selector; the message says where it stops being one."""


def parse_label_selector(text: str) -> LabelSelector:
    """All parts must hold; raises SelectorTextError."""
    requirements: list[Requirement] = []
    place = len(text) - len(text.lstrip())
    while place < len(text):
        requirement, place = _requirement(text, place)
        requirements.append(requirement)
        comma = _COMMA.match(text, place)
        if comma is None:
            raise SelectorTextError(f'selector "{text}" cannot be read from "{text[place:].strip()}" on; {SYNTAX}')
        if comma.end() == len(text) and "," in comma.group():
            raise SelectorTextError(f'selector "{text}" ends with a comma; {SYNTAX}')
        place = comma.end()
    if not requirements:
        raise SelectorTextError(f"the selector is empty; {SYNTAX}")
    selector = LabelSelector(match_expressions=tuple(requirements))
    problem = label_selector_problem(selector)
    if problem is not None:
        raise SelectorTextError(f'selector "{text}": {problem}')
    return selector


def _requirement(text: str, place: int) -> tuple[Requirement, int]:
    if found := _SET.match(text, place):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], "In" if found["operator"] == "in" else "NotIn", values), found.end()
    if found := _EQUAL.match(text, place):
        return Requirement(
            found["key"], "NotIn" if found["operator"] == "!=" else "In", (found["value"],)
        ), found.end()
    if found := _EXISTS.match(text, place):
        return Requirement(found["key"], "DoesNotExist" if found["not"] else "Exists"), found.end()
    raise SelectorTextError(f'selector "{text}" cannot be read from "{text[place:].strip()}" on; {SYNTAX}')
