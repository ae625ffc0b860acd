"""The contract of an external provisioner, as pure rules: when to act, where to create, how to handle answers.

An external provisioner needs nothing but these rules and a driver.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

from volsched.kube.meta import (
    EXTERNAL_PROVISIONER_FINALIZER,
    MIGRATED_TO,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE_KEYS,
    ZONE,
    zone_key,
)
from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.kube.selectors import TopologyTerm
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.pv_controller.rules.bind_writes import claim_reference
from volsched.pv_controller.rules.protection import DELETE, claim_provisioner
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.reasons import BOUND, RELEASED

# The topology requirement of a CreateVolume call: where a volume may be created, and where it should be.
#
# A segment is a label's key and value; a term is a conjunction of segments, sorted by key. A volume must be
# reachable from one of the requisite terms; the preferred ones are tried in their order.

Labels = Mapping[str, str]
Term = tuple[tuple[str, str], ...]
FNV_OFFSET, FNV_PRIME = 2166136261, 16777619
UINT32 = 1 << 32
NO_TOPOLOGY = "no available topology found"


class TopologyError(Exception):
    """No requirement is possible; `reschedule`: another node may work."""

    def __init__(self, message: str, *, reschedule: bool = False) -> None:
        super().__init__(message)
        self.reschedule = reschedule


@dataclass(frozen=True, slots=True)
class TopologyRequirement:
    requisite: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedNode:
    """The node of the first consumer, as far as known."""

    name: str
    labels: Labels | None
    """The node's labels; None: the node no longer exists."""
    keys: Sequence[str] | None
    """The driver's topology keys on the node; None: the node has no CSINode."""


def delayed_requirement(
    selected: SelectedNode, *, strict: bool, allowed: Sequence[TopologyTerm], nodes: Iterable[Labels]
) -> TopologyRequirement:
    """The requirement of a claim whose pod has a node. `strict`: only in the node's topology."""
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
    """The requirement of a claim that waits for no pod; None: the driver may choose freely."""
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
    """A node's term; None if it lacks one of the keys. Its zone is read from the label that it has."""
    wanted = sorted({(zone_key(labels) or key) if key == ZONE else key for key in keys})
    if not wanted or any(key not in labels for key in wanted):
        return None
    return tuple((key, labels[key]) for key in wanted)


def terms_of(nodes: Iterable[Labels], keys: Sequence[str]) -> list[Term]:
    """The terms of all nodes that have every key."""
    return [term for labels in nodes if (term := term_of(labels, keys)) is not None]


def flattened(allowed: Iterable[TopologyTerm]) -> list[Term]:
    """Every term with one value per key: the products of the values that a class allows."""
    combinations: list[Term] = []
    for term in allowed:
        expressions = sorted(term.match_label_expressions, key=lambda it: it.key)
        choices = [[(it.key, value) for value in it.values] for it in expressions]
        combinations += product(*choices) if choices else ()
    return combinations


def ordered(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Each once; the fewest segments first, then by key and value."""
    return tuple(sorted(set(terms), key=lambda term: (len(term), term)))


def rotated(terms: tuple[Term, ...], start: int) -> tuple[Term, ...]:
    """A rotation: the terms before `start` move to the end."""
    return terms[start:] + terms[:start]


def contains(outer: Term, inner: Term) -> bool:
    return set(inner) <= set(outer)


def spread_start(claim_name: str, count: int) -> int:
    """The start index that spreads claims: the claims of one StatefulSet replica start together, and those of the
    next replica one further."""
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


# The consequences of a driver's answer for the claim.
#
# Invariant: the pod is never rescheduled while storage may still appear for its node.


class DriverCode(StrEnum):
    """Why a driver's call failed, as a gRPC code; INTERNAL stands for every code without a row of its own."""

    CANCELED = "Canceled"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    UNAVAILABLE = "Unavailable"
    ABORTED = "Aborted"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    INVALID_ARGUMENT = "InvalidArgument"
    INTERNAL = "Internal"
    NOT_GRPC = ""


UNDECIDED = frozenset(
    {
        DriverCode.CANCELED,
        DriverCode.DEADLINE_EXCEEDED,
        DriverCode.UNAVAILABLE,
        DriverCode.ABORTED,
        DriverCode.NOT_GRPC,
    }
)
"""Codes after which the driver may still be at work."""
NO_SELECTOR = "claim Selector is not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A volume. Without a size it has the requested size."""

    handle: str
    bytes: int = 0
    topologies: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverRefusal:
    code: DriverCode
    message: str
    again_at: int | None = None
    """When a retry makes sense, if the driver knows."""


class Next(StrEnum):
    DONE = "done"
    """A suitable volume exists."""
    FINISHED = "finished"
    """No volume exists, and this call will create none; a new call may follow later."""
    BACKGROUND = "in background"
    """A volume may exist: the same call is repeated until its answer is final, even if the claim is gone."""
    RESCHEDULE = "reschedule"
    """No volume exists, and the pod should get another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverVerdict:
    next: Next
    why: str = ""
    infeasible: bool = False
    """The request itself is invalid: no early retry, unless the class is replaced."""
    delete: bool = False
    """Delete the volume before the call is repeated."""


def judge(
    answer: Created | DriverRefusal, *, wanted_bytes: int, topology: bool, node_selected: bool
) -> DriverVerdict:
    """`topology`: the driver supports it; `node_selected`: the claim has a node that can be removed."""
    if isinstance(answer, Created):
        if 0 < answer.bytes < wanted_bytes:
            why = f"the driver created a volume of {answer.bytes} bytes where {wanted_bytes} were asked for"
            return DriverVerdict(next=Next.BACKGROUND, why=why, delete=True)
        return DriverVerdict(next=Next.DONE)
    why = f"{answer.code}: {answer.message}" if answer.code else answer.message
    if answer.code in UNDECIDED:
        return DriverVerdict(next=Next.BACKGROUND, why=why)
    if answer.code is DriverCode.RESOURCE_EXHAUSTED and topology and node_selected:
        return DriverVerdict(next=Next.RESCHEDULE, why=why)
    return DriverVerdict(next=Next.FINISHED, why=why, infeasible=answer.code is DriverCode.INVALID_ARGUMENT)


# The conditions under which an external provisioner acts on a claim or a volume, and its writes.

Manifest = Mapping[str, Any]


def selected_node(claim: Claim) -> str:
    """The node of the first consumer; empty if none is chosen."""
    return next((claim.meta.annotations[key] for key in SELECTED_NODE_KEYS if key in claim.meta.annotations), "")


def wants_volume(
    claim: Claim, storage_class: StorageClass | None, *, driver: str, own_node: str | None = None
) -> bool:
    """Whether the provisioner must create a volume for the claim. `own_node`: it serves only this node."""
    notes = claim.meta.annotations
    ours = driver in (claim_provisioner(notes), notes.get(MIGRATED_TO))
    if claim.volume_name or not ours or storage_class is None or ROLLBACK in notes:
        return False
    if own_node is not None:
        return selected_node(claim) == own_node
    return storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER or selected_node(claim) != ""


def new_volume_manifest(
    claim: Claim, storage_class: StorageClass, created: Created, *, driver: str, mount_options: Sequence[str] = ()
) -> dict[str, Any]:
    """The volume's object. No phase and no claim's volumeName: the PV controller completes the binding."""
    size = Quantity(created.bytes * NANO, SuffixFamily.BINARY) if created.bytes else claim.size
    spec: dict[str, Any] = {
        "capacity": {"storage": str(size)},
        "accessModes": list(claim.access_modes),
        "volumeMode": claim.mode,
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or DELETE,
        "storageClassName": claim.class_name,
        "claimRef": claim_reference(claim),
        "csi": {"driver": driver, "volumeHandle": created.handle},
    }
    terms = [term_selector(term) for term in created.topologies if term]
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if mount_options:
        spec["mountOptions"] = list(mount_options)
    if claim.attributes_class:
        # Empty means none, which a volume expresses by leaving the field out.
        spec["volumeAttributesClassName"] = claim.attributes_class
    metadata = {
        "name": provisioned_name(claim),
        "annotations": {PROVISIONED_BY: storage_class.provisioner},
        "finalizers": [EXTERNAL_PROVISIONER_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def term_selector(term: Term) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in term]}


def is_ours(volume: Volume, *, driver: str) -> bool:
    notes = volume.meta.annotations
    return driver in (notes.get(PROVISIONED_BY), notes.get(MIGRATED_TO))


def is_to_be_deleted(volume: Volume, *, driver: str) -> bool:
    guarded = EXTERNAL_PROVISIONER_FINALIZER in volume.meta.finalizers
    return (
        is_ours(volume, driver=driver)
        and volume.phase == RELEASED
        and volume.reclaim_policy == DELETE
        and (guarded or not volume.meta.being_deleted)
    )


def guarding(volume: Volume, *, driver: str) -> tuple[str, ...]:
    """The volume's correct finalizers: a volume whose storage we must delete stays until that is done."""
    finalizers = volume.meta.finalizers
    if not is_ours(volume, driver=driver):
        return finalizers
    guarded = EXTERNAL_PROVISIONER_FINALIZER in finalizers
    if volume.reclaim_policy != DELETE:
        return tuple(name for name in finalizers if name != EXTERNAL_PROVISIONER_FINALIZER)
    if volume.phase == BOUND and not guarded and not volume.meta.being_deleted:
        return (*finalizers, EXTERNAL_PROVISIONER_FINALIZER)
    return finalizers
