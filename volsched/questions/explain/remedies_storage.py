"""Remedies for a claim that could have a volume made, were there room for it, or leave to make it there."""

from collections.abc import Iterator
from dataclasses import replace

from volsched.kube.meta import HOSTNAME, ZONE, Metadata
from volsched.kube.quantity import NANO, Quantity, SuffixFamily
from volsched.kube.selectors import LabelSelector, TopologyExpression, TopologyTerm
from volsched.kube.storage import Claim, StorageCapacity
from volsched.questions.explain.near_misses import speaks_for
from volsched.questions.explain.remedies_nodes import label_node, may_label
from volsched.questions.explain.remedies_scene import RemedyScene, size_text
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.rejection import Rejection, Rule


def storage_changes(scene: RemedyScene, claim: Claim, rejection: Rejection) -> Iterator[ClusterChange]:
    rules = {failure.rule for failure in rejection.failures}
    if Rule.FREE_STORAGE in rules:
        yield from _more_room(scene, claim)
    if Rule.ALLOWED_TOPOLOGIES in rules:
        yield from _allowed(scene, claim)


def _more_room(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    every = (it for _, it in sorted(scene.snapshot.capacities.items()))
    published = [it for it in every if it.storage_class_name == claim.class_name and speaks_for(it, scene.node)]
    for capacity in published:
        promised = scene.snapshot.reserved.get(capacity.key, 0)
        # Alone, and with all that the pod wants of the class: which of the two it takes, the trial says.
        for wanted in dict.fromkeys((claim.size.value(), _together(scene, claim))):
            yield from _raised(capacity, promised + wanted, claim.size)
        yield from _lowered(claim, capacity, promised)
    if not published:
        yield _published(scene, claim)


def _together(scene: RemedyScene, claim: Claim) -> int:
    claims = (scene.snapshot.claim(key) for key in {use.key for use in claim_uses(scene.pod)})
    mine = (it for it in claims if it is not None and it.class_name == claim.class_name)
    return sum(it.size.value() for it in mine if not is_fully_bound(it))


def _raised(capacity: StorageCapacity, needed: int, one: Quantity) -> Iterator[ClusterChange]:
    before = capacity.capacity.value() if capacity.capacity is not None else 0
    largest = capacity.maximum_volume_size
    if needed <= before and (largest is None or largest >= one):
        return
    size = max(needed, before)
    changed = replace(
        capacity,
        capacity=_quantity(size),
        maximum_volume_size=None if largest is None else max(largest, one),
    )
    words = f"from {size_text(before)} to {size_text(size)}" if size > before else f"({size_text(before)})"
    volumes = f", and volumes of {one}" if largest is not None and largest < one else ""
    text = f"raise what {capacity.key} has of class {capacity.storage_class_name} {words}{volumes}"
    yield ClusterChange(
        kind=ChangeKind.RAISE_CAPACITY,
        text=text,
        touched=(changed,),
        size=size - before,
        shape=f"raise what there is of class {capacity.storage_class_name}",
    )


def _lowered(claim: Claim, capacity: StorageCapacity, promised: int) -> Iterator[ClusterChange]:
    """A claim that asks for what there is."""
    total = capacity.capacity.value() - promised if capacity.capacity is not None else 0
    limit = capacity.limit.value() if capacity.limit is not None else 0
    room = min(total, limit)
    if not 0 < room < claim.size.value():
        return
    changed = replace(claim, requests={**claim.requests, "storage": _quantity(room)})
    text = f"make claim {claim.key} anew: ask for {size_text(room)} instead of {claim.size}"
    yield ClusterChange(
        kind=ChangeKind.LOWER_REQUEST, text=text, touched=(changed,), size=claim.size.value() - room
    )


def _published(scene: RemedyScene, claim: Claim) -> ClusterChange:
    key = next((it for it in (ZONE, HOSTNAME) if it in scene.node.labels), None)
    labels = {} if key is None else {key: scene.node.labels[key]}
    made = StorageCapacity(
        meta=Metadata(name=f"new-capacity-{scene.node.name}", namespace="default"),
        storage_class_name=claim.class_name,
        node_topology=LabelSelector(labels),
        capacity=_quantity(_together(scene, claim)),
    )
    place = f"in {key}={labels[key]}" if key is not None else f"at {scene.node.name}"
    driver = scene.snapshot.classes[claim.class_name].provisioner
    room = size_text(_together(scene, claim))
    return ClusterChange(
        kind=ChangeKind.RAISE_CAPACITY,
        text=f"have driver {driver} publish room for {room} of class {claim.class_name} {place}",
        touched=(made,),
        size=_together(scene, claim),
        shape=f"publish {room} of class {claim.class_name}",
    )


def _allowed(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """The class may provision where the node is, or the node is where the class may."""
    held = scene.snapshot.classes[claim.class_name]
    for term in held.allowed_topologies:
        parts = term.match_label_expressions
        failing = [it for it in parts if scene.node.labels.get(it.key) not in it.values]
        if failing and all(it.key in scene.node.labels for it in failing):
            widened = tuple(
                TopologyExpression(it.key, (*it.values, scene.node.labels[it.key])) if it in failing else it
                for it in parts
            )
            terms = tuple(TopologyTerm(widened) if it is term else it for it in held.allowed_topologies)
            words = ", ".join(f"{it.key}={scene.node.labels[it.key]}" for it in failing)
            text = f'allow {words} in allowedTopologies of StorageClass "{held.name}"'
            touched = (replace(held, allowed_topologies=terms),)
            yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=touched)
        labels = {it.key: it.values[0] for it in failing if it.values and it.key not in scene.node.labels}
        if len(labels) == len(failing) > 0 and may_label(scene.node, labels):
            yield label_node(scene.node, labels)


def _quantity(size: int) -> Quantity:
    return Quantity(size * NANO, SuffixFamily.BINARY)
