"""Selectors, affinities and references as short text for the `wanted` and `got` of a rejection."""

from collections.abc import Mapping, Sequence

from volsched.kube.selectors import LabelSelector, Requirement, TopologyTerm
from volsched.kube.storage import Volume


def or_none(text: str | None) -> str:
    return f'"{text}"' if text else "none"


def labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={labels[key]}" for key in sorted(labels)) or "no labels"


def requirement_text(requirement: Requirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def label_selector_text(selector: LabelSelector | None) -> str:
    if selector is None:
        return "no selector"
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    parts += [requirement_text(requirement) for requirement in selector.match_expressions]
    return ", ".join(parts) or "anything"


def affinity_text(volume: Volume) -> str:
    affinity = volume.node_affinity
    if affinity is None or affinity.required is None:
        return "reachable from every node"
    terms = [
        " and ".join(requirement_text(part) for part in (*term.match_expressions, *term.match_fields)) or "nothing"
        for term in affinity.required.node_selector_terms
    ]
    return " or ".join(terms) or "no node at all"


def topologies_text(terms: Sequence[TopologyTerm]) -> str:
    return " or ".join(
        " and ".join(f"{part.key} In [{', '.join(part.values)}]" for part in term.match_label_expressions)
        or "nothing"
        for term in terms
    )


def claimed_by(volume: Volume) -> str:
    ref = volume.claim_ref
    return "nobody" if ref is None else f"{ref.namespace}/{ref.name}" + (f" (uid {ref.uid})" if ref.uid else "")
