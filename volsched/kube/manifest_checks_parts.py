"""Checks that objects of several kinds share: choices, names, labels, amounts and selectors.

Each yields defects whose paths start where the caller says, so that a template's claim is judged like a claim.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from volsched.kube.names import annotation_key_problem, label_value_problem, qualified_name_problem
from volsched.kube.problems import Defect, Path, shown
from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.selectors import (
    NAME_FIELD,
    LabelSelector,
    NodeSelector,
    NodeTerm,
    Requirement,
    label_requirement_problem,
    node_field_problem,
    node_requirement_problem,
)

METADATA_MAX = 256 * 1024


def one_of(path: Path, value: str | None, allowed: Sequence[str]) -> Iterator[Defect]:
    if not value:
        yield Defect(path, f"is required; write one of {', '.join(allowed)}")
    elif value not in allowed:
        yield Defect(path, f"is not one of {', '.join(allowed)}", shown(value))


def named(path: Path, value: str, problem_of: Callable[[str], str | None], *, what: str) -> Iterator[Defect]:
    """A string that must be there and follow one of the rules of `names`."""
    if not value:
        yield Defect(path, f"is required; write {what}")
    elif problem := problem_of(value):
        yield Defect(path, problem, shown(value))


def unique(values: Iterable[str], at: Callable[[int], Path], *, what: str) -> Iterator[Defect]:
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value and first.setdefault(value, index) != index:
            yield Defect(at(index), f"is the {what} of entry {first[value]} as well; use another", shown(value))


def positive(path: Path, amounts: Mapping[str, Quantity]) -> Iterator[Defect]:
    """`storage` among the amounts, above zero."""
    if "storage" not in amounts:
        yield Defect((*path, "storage"), "is required; write a size such as 10Gi")
    elif amounts["storage"] <= ZERO:
        yield Defect((*path, "storage"), "must be greater than zero", shown(str(amounts["storage"])))


def not_negative(path: Path, amounts: Mapping[str, Quantity]) -> Iterator[Defect]:
    for name, amount in amounts.items():
        if amount < ZERO:
            yield Defect((*path, name), "must not be negative", shown(str(amount)))


def within(path: Path, value: int | None, low: int, high: int) -> Iterator[Defect]:
    if value is not None and not low <= value <= high:
        yield Defect(path, f"is not a whole number from {low} to {high}", shown(value))


def label_defects(path: Path, labels: Mapping[str, str]) -> Iterator[Defect]:
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            yield Defect((*path, key), f"the key {problem}")
        elif problem := label_value_problem(value):
            yield Defect((*path, key), problem, shown(value))


def annotation_defects(path: Path, annotations: Mapping[str, str]) -> Iterator[Defect]:
    for key in annotations:
        if problem := annotation_key_problem(key):
            yield Defect((*path, key), f"the key {problem}")
    size = text_size(annotations)
    if size > METADATA_MAX:
        yield Defect(path, f"hold {size} bytes in all, more than {METADATA_MAX}; shorten them")


def text_size(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


# --- selectors ------------------------------------------------------------------------------------------


def label_selector_defects(path: Path, selector: LabelSelector | None) -> Iterator[Defect]:
    if selector is None:
        return
    yield from label_defects((*path, "matchLabels"), selector.match_labels)
    for index, requirement in enumerate(selector.match_expressions):
        if problem := label_requirement_problem(requirement):
            yield Defect((*path, "matchExpressions", index), problem)


def node_selector_defects(path: Path, selector: NodeSelector) -> Iterator[Defect]:
    terms = selector.node_selector_terms
    if not terms:
        yield Defect((*path, "nodeSelectorTerms"), "is required; without a term no node fits")
    for index, term in enumerate(terms):
        yield from node_term_defects((*path, "nodeSelectorTerms", index), term)


def node_term_defects(path: Path, term: NodeTerm) -> Iterator[Defect]:
    for index, requirement in enumerate(term.match_expressions):
        if problem := node_requirement_problem(_integer_unchecked(requirement)):
            yield Defect((*path, "matchExpressions", index), problem)
    for index, requirement in enumerate(term.match_fields):
        if problem := node_field_problem(requirement):
            yield Defect((*path, "matchFields", index), problem)
        elif requirement.key != NAME_FIELD:
            yield Defect(
                (*path, "matchFields", index, "key"),
                f"is not a field that can be selected by; use {NAME_FIELD}",
                shown(requirement.key),
            )


def _integer_unchecked(requirement: Requirement) -> Requirement:
    """The API lets `Gt ["x"]` pass; only its evaluation finds that it is no integer."""
    if requirement.operator in ("Gt", "Lt") and len(requirement.values) == 1:
        return replace(requirement, operator="In")
    return requirement


def mapping_at(manifest: Any, *path: str) -> Mapping[str, Any]:
    """The mapping that stands at a path of a manifest, or an empty one."""
    for step in path:
        manifest = manifest.get(step) if isinstance(manifest, Mapping) else None
    return manifest if isinstance(manifest, Mapping) else {}
