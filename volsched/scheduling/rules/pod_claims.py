"""A pod's claims: which it uses, the state of each, and the consequences for the pod."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from volsched.kube.meta import (
    ALPHA_SELECTED_NODES,
    BIND_COMPLETED,
    BINDING_STAMP,
    DEFAULT_CLASS_KEYS,
    SELECTED_NODE,
    SELECTED_NODE_KEYS,
)
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.reasons import claim_not_readable, claim_of_other_pod, mode_not_set
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError


class ClaimUse(NamedTuple):
    """One volume of a pod that stands for a claim."""

    namespace: str
    name: str
    ephemeral: bool
    """Whether the claim is created from a template in the pod, and must be owned by the pod."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


# Not frozen, though never modified: created for every decision, in a third of the time of a frozen one.
@dataclass(slots=True, kw_only=True)
class PodClaims:
    """A pod's claims split by the work left to do, in the order of the pod's volumes."""

    bound: tuple[Claim, ...] = ()
    delayed: tuple[Claim, ...] = ()
    immediate: tuple[Claim, ...] = ()
    candidates: Mapping[str, tuple[Volume, ...]] = field(default_factory=dict)
    """The volumes per class of the delayed claims, in name order: one view for the whole cycle."""


def claim_uses(pod: Pod) -> list[ClaimUse]:
    uses: list[ClaimUse] = []
    namespace = pod.namespace
    for volume in pod.volumes:
        if volume.claim_name is not None:
            uses.append(ClaimUse(namespace, volume.claim_name, False))
        elif volume.claim_template is not None:
            uses.append(ClaimUse(namespace, f"{pod.name}-{volume.name}", True))
    return uses


def is_fully_bound(claim: Claim) -> bool:
    """Whether the claim names a volume and is marked as bound; its phase is deliberately ignored."""
    return claim.volume_name != "" and BIND_COMPLETED in claim.meta.annotations


def is_delay_binding(snapshot: Snapshot, claim: Claim) -> bool:
    """Whether the claim's class delays binding; a claim without a class, or with a deleted one, is not delayed."""
    storage_class = snapshot.classes.get(claim.class_name) if claim.class_name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise AttemptError(mode_not_set(storage_class.name))
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class for claims that name none: the newest default class, ties by the smallest name."""
    marked = [
        held for held in classes if any(held.meta.annotations.get(key) == "true" for key in DEFAULT_CLASS_KEYS)
    ]
    newest = max((held.meta.creation_timestamp for held in marked), default="")
    return min((held for held in marked if held.meta.creation_timestamp == newest), key=_name, default=None)


def _name(storage_class: StorageClass) -> str:
    return storage_class.name


def with_default_classes(snapshot: Snapshot) -> Snapshot:
    """The snapshot as after admission: unbound claims that name no class get the default class, if any."""
    default = default_class(snapshot.classes.values())
    if default is None:
        return snapshot
    claims = {
        key: claim if claim.has_class or claim.volume_name else replace(claim, storage_class_name=default.name)
        for key, claim in snapshot.stored_claims.items()
    }
    return replace(snapshot, stored_claims=claims)


def is_owned_by(claim: Claim, pod: Pod) -> bool:
    return any(owner.controller and owner.uid == pod.meta.uid for owner in claim.meta.owner_references)


def classify_claims(
    snapshot: Snapshot, pod: Pod, *, once: bool, uses: Sequence[ClaimUse] | None = None
) -> PodClaims:
    """Split the pod's claims; the first error ends it. `once`: a claim used by two volumes counts once.

    `uses`: the pod's, if the caller knows them already.
    """
    bound: list[Claim] = []
    delayed: list[Claim] = []
    immediate: list[Claim] = []
    counted: set[str] = set()
    for use in claim_uses(pod) if uses is None else uses:
        key = use.key
        if once and key in counted:
            continue
        counted.add(key)
        claim = snapshot.claim(key)
        if claim is None:
            raise AttemptError(claim_not_readable(key))
        if use.ephemeral and not is_owned_by(claim, pod):
            raise AttemptError(claim_of_other_pod(claim.key, pod.key))
        if is_fully_bound(claim):
            bound.append(claim)
        elif is_delay_binding(snapshot, claim) and claim.volume_name == "":
            delayed.append(claim)
        else:
            # Pre-bound by the user or half bound: the PV controller must finish it, whatever the class says.
            immediate.append(claim)
    classes = dict.fromkeys([claim.class_name for claim in delayed])
    candidates = {name: snapshot.volumes_of_class(name) for name in classes}
    return PodClaims(bound=tuple(bound), delayed=tuple(delayed), immediate=tuple(immediate), candidates=candidates)


def selected_node(claim: Claim, *, alpha: bool) -> str | None:
    """The claim's selected node; an empty value still commits it (to no node). `alpha`: read alpha names too."""
    key = selection_key(claim.meta.annotations) if alpha else SELECTED_NODE
    return claim.meta.annotations.get(key)


def selection_key(annotations: Mapping[str, str]) -> str:
    """The annotation that names the node for which a volume is provisioned: the stable one, or an alpha one.

    Once we have written to the claim only the stable one counts: provisioners that give up a node remove only the
    stable one.
    """
    if SELECTED_NODE in annotations or BINDING_STAMP in annotations:
        return SELECTED_NODE
    return next((key for key in ALPHA_SELECTED_NODES if key in annotations), SELECTED_NODE)


def selection(node: str, *, alpha: bool) -> dict[str, str]:
    """The annotations that commit a claim to a node."""
    return dict.fromkeys(SELECTED_NODE_KEYS if alpha else (SELECTED_NODE,), node)
