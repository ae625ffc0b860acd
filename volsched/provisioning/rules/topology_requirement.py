"""Where a volume may be made and where it should be: the topology requirement of a CreateVolume call.

A segment is a label's key and value; a term is segments that hold together, sorted by key. A volume must be
reachable from one of the requisite terms; the preferred ones are tried in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from volsched.kube.selectors import TopologyTerm

Labels = Mapping[str, str]
Term = tuple[tuple[str, str], ...]
FNV_OFFSET, FNV_PRIME = 2166136261, 16777619
UINT32 = 1 << 32
NO_TOPOLOGY = "no available topology found"


class TopologyError(Exception):
    """There is no requirement to be had; `reschedule`: another node may be better off."""

    def __init__(self, message: str, *, reschedule: bool = False) -> None:
        super().__init__(message)
        self.reschedule = reschedule


@dataclass(frozen=True, slots=True)
class TopologyRequirement:
    requisite: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedNode:
    """The node of the first consumer, as far as it is known."""

    name: str
    labels: Labels | None
    """None: there is no such node any more."""
    keys: Sequence[str] | None
    """The driver's topology keys on the node; None: the node has no CSINode."""


def delayed_requirement(
    selected: SelectedNode, *, strict: bool, allowed: Sequence[TopologyTerm], nodes: Iterable[Labels]
) -> TopologyRequirement:
    """For a claim whose pod has a node. Strict: there and nowhere else."""
    own = _own_term(selected)
    if strict:
        terms = flattened(allowed)
        if terms and not any(contains(own, term) for term in terms):
            raise TopologyError(f"topology {term_text(own)} of node {selected.name} is not an allowed one")
        return TopologyRequirement((own,), (own,))
    terms = flattened(allowed) if allowed else terms_of(nodes, [key for key, _ in own])
    requisite = ordered(terms)
    start = next((place for place, term in enumerate(requisite) if contains(own, term)), None)
    if start is None:
        raise TopologyError(f"selected topology {term_text(own)} is not in requisite {_texts(requisite)}")
    return TopologyRequirement(requisite, rotated(requisite, start))


def immediate_requirement(
    keys: Sequence[str],
    *,
    allowed: Sequence[TopologyTerm],
    nodes: Iterable[Labels],
    claim_name: str,
    immediate_topology: bool = True,
) -> TopologyRequirement | None:
    """For a claim that waits for no pod; None: the driver may choose freely."""
    if not allowed and not immediate_topology:
        return None
    requisite = ordered(flattened(allowed) if allowed else terms_of(nodes, keys))
    if not requisite:
        raise TopologyError(NO_TOPOLOGY)
    return TopologyRequirement(requisite, rotated(requisite, spread_start(claim_name, len(requisite))))


def _own_term(selected: SelectedNode) -> Term:
    if selected.keys is None:
        raise TopologyError(f'csinode "{selected.name}" not found', reschedule=True)
    if not selected.keys:
        raise TopologyError(f"no topology keys for the driver on node {selected.name}; does its plugin run there?")
    if selected.labels is None:
        raise TopologyError(f'node "{selected.name}" not found')
    term = term_of(selected.labels, selected.keys)
    if term is None:
        missing = sorted(key for key in selected.keys if key not in selected.labels)
        raise TopologyError(f"node {selected.name} lacks the label {', '.join(missing)}")
    return term


def term_of(labels: Labels, keys: Iterable[str]) -> Term | None:
    """A node's term; None where it lacks one of the keys."""
    wanted = sorted(set(keys))
    if not wanted or any(key not in labels for key in wanted):
        return None
    return tuple((key, labels[key]) for key in wanted)


def terms_of(nodes: Iterable[Labels], keys: Sequence[str]) -> list[Term]:
    """The terms of all nodes that have every key."""
    return [term for labels in nodes if (term := term_of(labels, keys)) is not None]


def flattened(allowed: Iterable[TopologyTerm]) -> list[Term]:
    """Every term with one value per key: the products of the values that a class allows."""
    found: list[Term] = []
    for term in allowed:
        expressions = sorted(term.match_label_expressions, key=lambda it: it.key)
        choices = [[(it.key, value) for value in it.values] for it in expressions]
        found += product(*choices) if choices else ()
    return found


def ordered(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Each once; the fewest segments first, then by key and value."""
    return tuple(sorted(set(terms), key=lambda term: (len(term), term)))


def rotated(terms: tuple[Term, ...], start: int) -> tuple[Term, ...]:
    """The cyclic order stays: those behind the first come before those in front of it."""
    return terms[start:] + terms[:start]


def contains(outer: Term, inner: Term) -> bool:
    return set(inner) <= set(outer)


def spread_start(claim_name: str, count: int) -> int:
    """Where to begin, so that claims are spread: those of a StatefulSet's replica begin together, and the next
    replica's one further."""
    text, index = claim_name, 0
    base, dash, number = claim_name.rpartition("-")
    if dash and number.isascii() and number.isdecimal() and int(number) < UINT32:
        text, index = base.rpartition("-")[2], int(number)
    return (fnv1(text) + index) % UINT32 % count


def fnv1(text: str) -> int:
    """FNV-1 with 32 bits: multiplied before it is mixed, unlike FNV-1a."""
    hashed = FNV_OFFSET
    for byte in text.encode():
        hashed = hashed * FNV_PRIME % UINT32 ^ byte
    return hashed


def term_text(term: Term) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in term) + "}"


def _texts(terms: Iterable[Term]) -> str:
    return "[" + ", ".join(map(term_text, terms)) + "]"
