"""Node, topology and label selectors with every edge case of the reference, and a parser of `-l` selectors."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from volsched.kube.names import label_value_problem, qualified_name_problem

# A malformed part never raises: a node term with one cannot match, a label selector with one has a `problem`.
# Results of the syntax checks are cached, because one selector is evaluated against thousands of nodes.

CAMEL = ConfigDict(alias_generator=to_camel)
Labels = Mapping[str, str]

NAME_FIELD = "metadata.name"

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_INT64_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Requirement:
    """`key operator values`, as written; it may be malformed."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All of its expressions and fields must hold; with neither it matches nothing."""

    __pydantic_config__ = CAMEL
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """One of its terms must match; without terms it matches nothing."""

    __pydantic_config__ = CAMEL
    node_selector_terms: tuple[NodeTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyExpression:
    key: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyTerm:
    """One entry of a class's allowedTopologies."""

    __pydantic_config__ = CAMEL
    match_label_expressions: tuple[TopologyExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Everything in it must hold; an empty one matches everything."""

    __pydantic_config__ = CAMEL
    match_labels: Labels = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


def parse_integer(text: str) -> int | None:
    """A decimal int64 as the reference reads it; Python's int() would also accept blanks and underscores."""
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("+-").lstrip("0")) > _INT64_DIGITS:
        return None
    number = int(text)
    return number if _INT64_MIN <= number <= _INT64_MAX else None


# --- node selectors -------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def node_requirement_problem(requirement: Requirement) -> str | None:
    """Why an entry of matchExpressions is malformed, or None."""
    operator, values = requirement.operator, requirement.values
    match operator:
        case "In" | "NotIn":
            count_problem = None if values else f"{operator} needs at least one value"
        case "Exists" | "DoesNotExist":
            count_problem = f"{operator} takes no values" if values else None
        case "Gt" | "Lt":
            count_problem = None if len(values) == 1 else f"{operator} needs exactly one value"
            if count_problem is None and parse_integer(values[0]) is None:
                count_problem = f'{operator} needs an integer, not "{values[0]}"'
        case _:
            count_problem = f'"{operator}" is not one of the operators In, NotIn, Exists, DoesNotExist, Gt and Lt'
    return count_problem or _spelling_problem(requirement.key, values)


@lru_cache(maxsize=8192)
def node_field_problem(requirement: Requirement) -> str | None:
    """Why an entry of matchFields is malformed, or None. Its key is not part of the syntax."""
    if requirement.operator not in ("In", "NotIn"):
        return f'"{requirement.operator}" is not one of the operators of matchFields, In and NotIn'
    if len(requirement.values) != 1:
        return f"{requirement.operator} needs exactly one value in matchFields"
    return None


@lru_cache(maxsize=8192)
def node_term_problem(term: NodeTerm) -> str | None:
    """The first malformed part of a term, or None. One such part makes the whole term unable to match."""
    for requirement in term.match_expressions:
        problem = node_requirement_problem(requirement)
        if problem is not None:
            return problem
    for requirement in term.match_fields:
        problem = node_field_problem(requirement)
        if problem is not None:
            return problem
    return None


def node_term_matches(term: NodeTerm, labels: Labels, *, name: str | None) -> bool:
    """`name` is the node's name, or None where matchFields are not evaluated (a volume's node affinity)."""
    if not term.match_expressions and not term.match_fields:
        return False
    if node_term_problem(term) is not None:
        return False
    for requirement in term.match_expressions:
        if not _requirement_holds(requirement, labels):
            return False
    return name is None or all(_field_holds(requirement, name) for requirement in term.match_fields)


def node_selector_matches(selector: NodeSelector, labels: Labels, *, name: str | None) -> bool:
    # A loop, here and above: `any` over a generator doubles the cost of the single term of most selectors.
    for term in selector.node_selector_terms:  # noqa: SIM110
        if node_term_matches(term, labels, name=name):
            return True
    return False


def _requirement_holds(requirement: Requirement, labels: Labels) -> bool:
    """A well-formed requirement against labels (which are not validated themselves)."""
    got = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return got in requirement.values
        case "NotIn":
            return got not in requirement.values
        case "Exists":
            return got is not None
        case "DoesNotExist":
            return got is None
        case _:
            return got is not None and _compare(requirement.operator, got, requirement.values[0])


def _compare(operator: str, label: str, value: str) -> bool:
    left, right = parse_integer(label), parse_integer(value)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _field_holds(requirement: Requirement, name: str) -> bool:
    got = name if requirement.key == NAME_FIELD else ""
    return (got in requirement.values) == (requirement.operator == "In")


# --- topology selectors ---------------------------------------------------------------------------------


def topology_allows(terms: Sequence[TopologyTerm], labels: Labels) -> bool:
    """A class's allowedTopologies: an absent or empty list allows every node."""
    return not terms or any(_topology_term_matches(term, labels) for term in terms)


def _topology_term_matches(term: TopologyTerm, labels: Labels) -> bool:
    expressions = term.match_label_expressions
    if not expressions or any(topology_expression_problem(expression) for expression in expressions):
        return False
    return all(labels.get(expression.key) in expression.values for expression in expressions)


@lru_cache(maxsize=4096)
def topology_expression_problem(expression: TopologyExpression) -> str | None:
    if not expression.values:
        return "needs at least one value"
    return _spelling_problem(expression.key, expression.values)


# --- label selectors ------------------------------------------------------------------------------------


def label_selector_problem(selector: LabelSelector) -> str | None:
    """Why the selector is invalid, in the reference's words where it has them, or None."""
    for key in sorted(selector.match_labels):
        problem = _spelling_problem(key, (selector.match_labels[key],))
        if problem is not None:
            return problem
    for requirement in selector.match_expressions:
        problem = label_requirement_problem(requirement)
        if problem is not None:
            return problem
    return None


@lru_cache(maxsize=4096)
def label_requirement_problem(requirement: Requirement) -> str | None:
    operator, values = requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        if not values:
            return "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            shown = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
            return f"values: Invalid value: {shown}: values set must be empty for exists and does not exist"
    else:
        return f'"{operator}" is not a valid label selector operator'
    return _spelling_problem(requirement.key, values)


def label_selector_matches(selector: LabelSelector, labels: Labels) -> bool:
    """Whether the labels match; the selector must have no problem."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _requirement_holds(requirement, labels) for requirement in selector.match_expressions
    )


def _spelling_problem(key: str, values: Sequence[str]) -> str | None:
    problem = qualified_name_problem(key)
    if problem is not None:
        return f'key "{key}" {problem}'
    for value in values:
        problem = label_value_problem(value)
        if problem is not None:
            return f'value "{value}" {problem}'
    return None


# Label selectors as people write them after `-l`: `tier=db,zone in (a,b),!draining`.

_SET = re.compile(r"(?P<key>[^\s=!,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s=!,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s=!,()]+)")
_COMMA = re.compile(r"\s*(?:,\s*|$)")
SYNTAX = "write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, with commas between them"


class SelectorTextError(ValueError):
    """The text is not a selector; the message names the position of the error."""


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
    if match := _SET.match(text, place):
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "In" if match["operator"] == "in" else "NotIn", values), match.end()
    if match := _EQUAL.match(text, place):
        return Requirement(
            match["key"], "NotIn" if match["operator"] == "!=" else "In", (match["value"],)
        ), match.end()
    if match := _EXISTS.match(text, place):
        return Requirement(match["key"], "DoesNotExist" if match["not"] else "Exists"), match.end()
    raise SelectorTextError(f'selector "{text}" cannot be read from "{text[place:].strip()}" on; {SYNTAX}')
