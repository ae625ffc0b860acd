"""What a remedy is looked for in: one pod at one node, and ready-made parts of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from volsched.kube.claim_reference import reference_to
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, Metadata
from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.kube.selectors import LabelSelector, NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import AVAILABLE, NO_PROVISIONER, Claim, Volume, VolumeNodeAffinity, VolumeSource
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.cycle import Verdict
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

BOUND = "Bound"
NEW = "new-volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyScene:
    snapshot: Snapshot
    """As far as it matters on the node, after the changes so far."""
    pod: Pod
    node: Node
    profile: Profile
    verdict: Verdict | None
    """None: the pod was refused before any node was looked at."""


def size_text(size: int) -> str:
    return str(Quantity(size * NANO, SuffixFamily.BINARY))


def modes_text(claim: Claim) -> str:
    return "+".join(claim.access_modes) or "no access mode"


def class_text(claim: Claim) -> str:
    return f'class "{claim.class_name}"' if claim.class_name else "no class"


def pairs_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={labels[key]}" for key in sorted(labels))


def new_volume(scene: RemedyScene, claim: Claim, *, name: str = "") -> tuple[Volume, str]:
    """The least that would serve the claim on the node, and where it would have to be, in words."""
    siblings = scene.snapshot.volumes_of_class(claim.class_name)
    keys = next((keys for it in siblings if (keys := _keys(it)) and keys <= scene.node.labels.keys()), None)
    if keys is None and HOSTNAME in scene.node.labels:
        keys = {HOSTNAME}
    affinity, place = _place(scene.node, sorted(keys or ()))
    made = Volume(
        meta=Metadata(name=name or f"{NEW}-for-{claim.name}", labels=_labels_for(claim.selector)),
        capacity={"storage": claim.size},
        access_modes=claim.access_modes,
        storage_class_name=claim.class_name,
        volume_mode=claim.mode,
        attributes_class=claim.attributes_class,
        node_affinity=affinity,
        source=_source(siblings, name or NEW),
        phase=AVAILABLE,
    )
    return made, place


def completed(claim: Claim, volume: Volume) -> tuple[Claim, Volume]:
    """Both once the PV controller has bound them."""
    annotations = {**claim.meta.annotations, BIND_COMPLETED: "yes"}
    meta = replace(claim.meta, annotations=annotations)
    bound = replace(claim, volume_name=volume.name, phase=BOUND, meta=meta)
    return bound, replace(volume, claim_ref=reference_to(claim), phase=BOUND)


def provisions(scene: RemedyScene, claim: Claim) -> bool:
    held = scene.snapshot.classes.get(claim.class_name)
    return held is not None and held.provisioner not in ("", NO_PROVISIONER)


def with_labels(node: Node, labels: Mapping[str, str]) -> Node:
    return replace(node, meta=replace(node.meta, labels={**node.labels, **labels}))


def _keys(volume: Volume) -> set[str]:
    affinity = volume.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    return {part.key for term in terms for part in term.match_expressions}


def _place(node: Node, keys: list[str]) -> tuple[VolumeNodeAffinity | None, str]:
    if not keys:
        return None, f"that {node.name} can reach"
    parts = tuple(Requirement(key, "In", (node.labels[key],)) for key in keys)
    affinity = VolumeNodeAffinity(required=NodeSelector((NodeTerm(match_expressions=parts),)))
    if keys == [HOSTNAME]:
        return affinity, f"on {node.name}"
    return affinity, "in " + ", ".join(f"{key}={node.labels[key]}" for key in keys)


def _labels_for(selector: LabelSelector | None) -> dict[str, str]:
    """Labels that satisfy the selector, where some do."""
    if selector is None:
        return {}
    labels = dict(selector.match_labels)
    for part in selector.match_expressions:
        if part.operator == "In" and part.values:
            labels.setdefault(part.key, part.values[0])
        elif part.operator == "Exists":
            labels.setdefault(part.key, "")
    return labels


def _source(siblings: tuple[Volume, ...], handle: str) -> VolumeSource | None:
    """Of the kind that the class has, so that a disk which must be attached counts as one."""
    like = next((it.source for it in siblings if it.source is not None), None)
    if like is None or like.kind != "csi":
        return None
    return VolumeSource("csi", {"driver": like.text("driver"), "volumeHandle": handle})
