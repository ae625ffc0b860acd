"""The scene of a search for remedies, texts of remedies, and ways to make a volume serve a claim."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from volsched.binding.rules.failures import free, may_go_back
from volsched.kube.manifest import reference_to
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, Metadata
from volsched.kube.selectors import LabelSelector, NodeSelector, NodeTerm, Requirement, label_selector_matches
from volsched.kube.storage import (
    AVAILABLE,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    Claim,
    Volume,
    VolumeNodeAffinity,
    VolumeSource,
)
from volsched.kube.workloads import Node, Pod
from volsched.questions.explain.survey import Near
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.scheduling.rules.cycle import Verdict
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Rule

BOUND = "Bound"
NEW = "new-volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyScene:
    snapshot: Snapshot
    """The objects that matter on the node, after the changes so far."""
    pod: Pod
    node: Node
    profile: Profile
    verdict: Verdict | None
    """The node's verdict; None: the pod was refused before any node was checked."""


def modes_text(claim: Claim) -> str:
    return "+".join(claim.access_modes) or "no access mode"


def class_text(claim: Claim) -> str:
    return f'class "{claim.class_name}"' if claim.class_name else "no class"


def pairs_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={labels[key]}" for key in sorted(labels))


def new_volume(scene: RemedyScene, claim: Claim, *, name: str = "") -> tuple[Volume, str]:
    """The smallest volume that would serve the claim on the node, and its place in words."""
    siblings = scene.snapshot.volumes_of_class(claim.class_name)
    keys = next(
        (keys for it in siblings if (keys := _topology_keys(it)) and keys <= scene.node.labels.keys()), None
    )
    if keys is None and HOSTNAME in scene.node.labels:
        keys = {HOSTNAME}
    affinity, place = _place(scene.node, sorted(keys or ()))
    volume = Volume(
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
    return volume, place


def bound_pair(claim: Claim, volume: Volume) -> tuple[Claim, Volume]:
    """Claim and volume as they are when the PV controller has bound them."""
    annotations = {**claim.meta.annotations, BIND_COMPLETED: "yes"}
    meta = replace(claim.meta, annotations=annotations)
    bound = replace(claim, volume_name=volume.name, phase=BOUND, meta=meta)
    return bound, replace(volume, claim_ref=reference_to(claim), phase=BOUND)


def provisions(scene: RemedyScene, claim: Claim) -> bool:
    class_ = scene.snapshot.classes.get(claim.class_name)
    return class_ is not None and class_.provisioner not in ("", NO_PROVISIONER)


def with_labels(node: Node, labels: Mapping[str, str]) -> Node:
    return replace(node, meta=replace(node.meta, labels={**node.labels, **labels}))


def _topology_keys(volume: Volume) -> set[str]:
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
    """Labels that satisfy the selector, as far as labels can."""
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
    """A source like those of the class's volumes, so that a disk that must be attached counts as one."""
    like = next((it.source for it in siblings if it.source is not None), None)
    if like is None or like.kind != "csi":
        return None
    return VolumeSource("csi", {"driver": like.text("driver"), "volumeHandle": handle})


# Ways to make an existing volume serve a claim: release it from its holder, or lower the claim's request.

GIVEN_UP = ("Released", "Failed")
RETAIN = "Retain"
_BY_CLAIM = frozenset({Rule.CAPACITY, Rule.SELECTOR, Rule.ACCESS_MODES, Rule.CLASS})
_BY_VOLUME = frozenset({Rule.UNCLAIMED, Rule.PHASE, Rule.SELECTOR})


def ways_to_serve(scene: RemedyScene, claim: Claim, near: Near) -> list[ClusterChange] | None:
    """Ways to make the volume serve the claim; None if there are none."""
    rules = set(near.rules)
    if not rules or not rules <= _BY_CLAIM | _BY_VOLUME:
        return None
    release = _free_volume(scene, near.volume) if rules & {Rule.UNCLAIMED, Rule.PHASE} else None
    if rules & {Rule.UNCLAIMED, Rule.PHASE} and release is None:
        return None
    volume = near.volume if release is None else _volume_of(release, near.volume.name)
    ways: list[ClusterChange] = []
    by_claim = rules & _BY_CLAIM
    if by_claim:
        recreation = _recreate_claim(scene, claim, volume, by_claim)
        if recreation is not None:
            ways.append(recreation)
    if by_claim == {Rule.SELECTOR}:
        labelling = _label_volume(claim, volume)
        if labelling is not None:
            ways.append(labelling)
    if release is None:
        return ways or None
    if not by_claim:
        return [release]
    return [_combined(release, way) for way in ways] or None


def _volume_of(change: ClusterChange, name: str) -> Volume:
    volumes = (it for it in (*change.touched, *change.follows) if isinstance(it, Volume) and it.name == name)
    return next(volumes)


def _combined(first: ClusterChange, second: ClusterChange) -> ClusterChange:
    """Both as one change; the second is based on the result of the first."""
    touched = {(type(it), it.meta.key): it for it in (*first.touched, *second.touched)}
    return ClusterChange(
        kind=second.kind,
        text=f"{first.text}, and {second.text}",
        touched=tuple(touched.values()),
        removed=first.removed,
        follows=first.follows,
        size=first.size + second.size,
    )


def _free_volume(scene: RemedyScene, volume: Volume) -> ClusterChange | None:
    """Make the volume available, unless that would lose data that no person has checked."""
    available = free(volume)
    ref = volume.claim_ref
    holder = None if ref is None else scene.snapshot.claim(f"{ref.namespace}/{ref.name}")
    is_held = holder is not None and ref is not None and ref.uid in ("", holder.meta.uid)
    if volume.meta.being_deleted:
        return None
    if volume.phase in GIVEN_UP and not is_held and volume.reclaim_policy in ("", RETAIN):
        text = (
            f"look at the data on {volume.name} ({volume.size}, {volume.phase}), then: "
            f"volsched release {volume.name} --reason TEXT (in a cluster of Kubernetes: remove its claimRef)"
        )
        return ClusterChange(kind=ChangeKind.RELEASE, text=text, touched=(available,))
    if is_held and holder is not None and holder.volume_name == volume.name and _is_unused(scene, holder):
        text = f"delete claim {holder.key}: it holds {volume.name} ({volume.size}), empty and used by no pod"
        return ClusterChange(kind=ChangeKind.FREE, text=text, removed=(holder,), follows=(available,))
    if ref is not None and not ref.uid and holder is None and volume.phase in ("", AVAILABLE):
        text = (
            f"remove the claimRef of {volume.name}: it is reserved for {ref.namespace}/{ref.name}, which is gone"
        )
        return ClusterChange(kind=ChangeKind.FREE, text=text, touched=(available,))
    if ref is None and volume.phase in ("", "Pending"):
        text = f"let the PV controller handle {volume.name}: it is not Available yet (volsched schedule)"
        return ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=(available,))
    return None


def _is_unused(scene: RemedyScene, claim: Claim) -> bool:
    """Whether the claim is certainly empty and no pod uses it, not even one that waits for a node."""
    is_used = any(use.key == claim.key for pod in scene.snapshot.pods.values() for use in claim_uses(pod))
    return not is_used and may_go_back(scene.snapshot, scene.pod, claim)


def _recreate_claim(scene: RemedyScene, claim: Claim, volume: Volume, rules: set[Rule]) -> ClusterChange | None:
    changed, words, size, kind = claim, [], 0, ChangeKind.RELAX
    if Rule.CLASS in rules:
        class_ = scene.snapshot.classes.get(volume.class_name)
        if class_ is None or class_.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            return None
        annotations = dict(claim.meta.annotations)
        changed = replace(
            changed, storage_class_name=class_.name, meta=replace(claim.meta, annotations=annotations)
        )
        words.append(f'ask for class "{class_.name}" instead of {class_text(claim)}')
    if Rule.SELECTOR in rules and claim.selector is not None:
        selector = _loosened_selector(claim.selector, volume)
        changed = replace(changed, selector=selector)
        words.append(f"drop {_dropped_keys(claim.selector, selector)} from its selector")
    if Rule.ACCESS_MODES in rules:
        modes = tuple(mode for mode in claim.access_modes if mode in volume.access_modes) or volume.access_modes
        if not modes:
            return None
        changed = replace(changed, access_modes=modes)
        words.append(f"ask for {'+'.join(modes)} instead of {modes_text(claim)}")
    if Rule.CAPACITY in rules:
        if volume.size.nano <= 0:
            return None
        changed = replace(changed, requests={**claim.requests, "storage": volume.size})
        words.append(f"ask for {volume.size} instead of {claim.size}")
        size, kind = claim.size.value() - volume.size.value(), ChangeKind.LOWER_REQUEST
    if not words:
        return None
    text = f"recreate claim {claim.key} for {volume.name}: {', '.join(words)}"
    summary = "less" if words == words[-1:] and size else ", ".join(words)
    return ClusterChange(kind=kind, text=text, touched=(changed,), size=size, shape=f"{summary} for {claim.key}")


def _loosened_selector(selector: LabelSelector, volume: Volume) -> LabelSelector:
    labels = volume.meta.labels
    match_labels = {key: value for key, value in selector.match_labels.items() if labels.get(key) == value}
    parts = tuple(
        it for it in selector.match_expressions if label_selector_matches(LabelSelector({}, (it,)), labels)
    )
    return LabelSelector(match_labels, parts)


def _dropped_keys(before: LabelSelector, after: LabelSelector) -> str:
    keys = [key for key in before.match_labels if key not in after.match_labels]
    keys += [it.key for it in before.match_expressions if it not in after.match_expressions]
    return ", ".join(dict.fromkeys(keys))


def _label_volume(claim: Claim, volume: Volume) -> ClusterChange | None:
    """Give the volume the labels that the claim's selector requires."""
    selector = claim.selector
    if selector is None:
        return None
    wanted = {key: value for key, value in selector.match_labels.items() if volume.meta.labels.get(key) != value}
    labels = {**volume.meta.labels, **wanted}
    if not wanted or not label_selector_matches(selector, labels):
        return None
    touched = (replace(volume, meta=replace(volume.meta, labels=labels)),)
    text = f"label volume {volume.name} {pairs_text(wanted)}, if it is what claim {claim.key} asks for"
    return ClusterChange(kind=ChangeKind.LABEL, text=text, touched=touched)
