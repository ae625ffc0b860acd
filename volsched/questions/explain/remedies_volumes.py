"""Remedies for problems of claims: volumes on a node, capacity to provision one, missing objects."""

from collections.abc import Iterator
from dataclasses import replace

from volsched.binding.rules.failures import free, may_go_back, unbound
from volsched.kube.manifest import reaches
from volsched.kube.meta import HOSTNAME, ROLLBACK, SELECTED_NODE_KEYS, Metadata, zone_key
from volsched.kube.quantity import NANO, Quantity, SuffixFamily, bytes_text, parse_quantity
from volsched.kube.selectors import LabelSelector, TopologyExpression, TopologyTerm, label_selector_problem
from volsched.kube.storage import (
    LOST,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    Claim,
    StorageCapacity,
    StorageClass,
    Volume,
)
from volsched.kube.workloads import Pod
from volsched.questions.explain.remedies_nodes import label_node, limit_changes, may_label
from volsched.questions.explain.remedies_scene import (
    RemedyScene,
    bound_pair,
    class_text,
    modes_text,
    new_volume,
    pairs_text,
    provisions,
    ways_to_serve,
    with_labels,
)
from volsched.questions.explain.survey import covers, nearest
from volsched.questions.simulate.changes import ChangeKind, ClusterChange, from_template, owned_by
from volsched.scheduling.rules.matching import Search, failed_rules
from volsched.scheduling.rules.pod_claims import (
    ClaimUse,
    claim_uses,
    default_class,
    is_fully_bound,
    is_owned_by,
    selected_node,
)
from volsched.scheduling.rules.reasons import BOUND_TO_MISSING_VOLUME, NODE_AFFINITY_MISMATCH, TOO_MANY_VOLUMES
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Rejection, Rule

# Remedies for a claim whose volume cannot be provisioned: no capacity, or the class excludes the place.


def storage_changes(scene: RemedyScene, claim: Claim, rejection: Rejection) -> Iterator[ClusterChange]:
    rules = {failure.rule for failure in rejection.failures}
    if Rule.FREE_STORAGE in rules:
        yield from _more_room(scene, claim)
    if Rule.ALLOWED_TOPOLOGIES in rules:
        yield from _allow_topology(scene, claim)


def _more_room(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    every = (it for _, it in sorted(scene.snapshot.capacities.items()))
    published = [it for it in every if it.storage_class_name == claim.class_name and covers(it, scene.node)]
    for capacity in published:
        promised = scene.snapshot.reserved.get(capacity.key, 0)
        # For this claim alone, and for all of the pod's requests of the class: the trial shows which is needed.
        for wanted in dict.fromkeys((claim.size.value(), _requested_of_class(scene, claim))):
            yield from _raise_capacity(capacity, promised + wanted, claim.size)
        yield from _lower_request(claim, capacity, promised)
    if not published:
        yield _publish_capacity(scene, claim)


def _requested_of_class(scene: RemedyScene, claim: Claim) -> int:
    claims = (scene.snapshot.claim(key) for key in {use.key for use in claim_uses(scene.pod)})
    of_class = (it for it in claims if it is not None and it.class_name == claim.class_name)
    return sum(it.size.value() for it in of_class if not is_fully_bound(it))


def _raise_capacity(capacity: StorageCapacity, needed: int, claim_size: Quantity) -> Iterator[ClusterChange]:
    before = capacity.capacity.value() if capacity.capacity is not None else 0
    largest = capacity.maximum_volume_size
    if needed <= before and (largest is None or largest >= claim_size):
        return
    size = max(needed, before)
    changed = replace(
        capacity,
        capacity=_quantity(size),
        maximum_volume_size=None if largest is None else max(largest, claim_size),
    )
    words = f"from {bytes_text(before)} to {bytes_text(size)}" if size > before else f"({bytes_text(before)})"
    volumes = f", and volumes of {claim_size}" if largest is not None and largest < claim_size else ""
    text = f"raise the capacity of {capacity.key} for class {capacity.storage_class_name} {words}{volumes}"
    yield ClusterChange(
        kind=ChangeKind.RAISE_CAPACITY,
        text=text,
        touched=(changed,),
        size=size - before,
        shape=f"raise the capacity for class {capacity.storage_class_name}",
    )


def _lower_request(claim: Claim, capacity: StorageCapacity, promised: int) -> Iterator[ClusterChange]:
    """Lower the claim's request to the capacity that is left."""
    total = capacity.capacity.value() - promised if capacity.capacity is not None else 0
    limit = capacity.limit.value() if capacity.limit is not None else 0
    room = min(total, limit)
    if not 0 < room < claim.size.value():
        return
    changed = replace(claim, requests={**claim.requests, "storage": _quantity(room)})
    text = f"recreate claim {claim.key}: ask for {bytes_text(room)} instead of {claim.size}"
    yield ClusterChange(
        kind=ChangeKind.LOWER_REQUEST, text=text, touched=(changed,), size=claim.size.value() - room
    )


def _publish_capacity(scene: RemedyScene, claim: Claim) -> ClusterChange:
    key = zone_key(scene.node.labels) or (HOSTNAME if HOSTNAME in scene.node.labels else None)
    labels = {} if key is None else {key: scene.node.labels[key]}
    capacity = StorageCapacity(
        meta=Metadata(name=f"new-capacity-{scene.node.name}", namespace="default"),
        storage_class_name=claim.class_name,
        node_topology=LabelSelector(labels),
        capacity=_quantity(_requested_of_class(scene, claim)),
    )
    place = f"in {key}={labels[key]}" if key is not None else f"at {scene.node.name}"
    driver = scene.snapshot.classes[claim.class_name].provisioner
    room = bytes_text(_requested_of_class(scene, claim))
    return ClusterChange(
        kind=ChangeKind.RAISE_CAPACITY,
        text=f"have driver {driver} publish room for {room} of class {claim.class_name} {place}",
        touched=(capacity,),
        size=_requested_of_class(scene, claim),
        shape=f"publish {room} of class {claim.class_name}",
    )


def _allow_topology(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """Let the class provision where the node is, or label the node so that it is where the class provisions."""
    class_ = scene.snapshot.classes[claim.class_name]
    for term in class_.allowed_topologies:
        parts = term.match_label_expressions
        failing = [it for it in parts if scene.node.labels.get(it.key) not in it.values]
        if failing and all(it.key in scene.node.labels for it in failing):
            widened = tuple(
                TopologyExpression(it.key, (*it.values, scene.node.labels[it.key])) if it in failing else it
                for it in parts
            )
            terms = tuple(TopologyTerm(widened) if it is term else it for it in class_.allowed_topologies)
            words = ", ".join(f"{it.key}={scene.node.labels[it.key]}" for it in failing)
            text = f'allow {words} in allowedTopologies of StorageClass "{class_.name}"'
            touched = (replace(class_, allowed_topologies=terms),)
            yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=touched)
        labels = {it.key: it.values[0] for it in failing if it.values and it.key not in scene.node.labels}
        if len(labels) == len(failing) > 0 and may_label(scene.node, labels):
            yield label_node(scene.node, labels)


def _quantity(size: int) -> Quantity:
    return Quantity(size * NANO, SuffixFamily.BINARY)


# Remedies for a pod that is refused before any node is checked: a claim, class or volume does not exist.

FOR_EXAMPLE = parse_quantity("1Gi")
CLASSES_TRIED = 3
READ_WRITE_ONCE = "ReadWriteOnce"


def pod_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Changes for the first of the pod's claims that needs any."""
    for use in claim_uses(scene.pod):
        changes = list(_claim_changes(scene, use))
        if changes:
            yield from changes
            return


def _claim_changes(scene: RemedyScene, use: ClaimUse) -> Iterator[ClusterChange]:
    snapshot = scene.snapshot
    claim = snapshot.claim(use.key)
    if claim is None:
        yield from _create_claim(scene, use)
    elif claim.meta.being_deleted:
        text = f'recreate PersistentVolumeClaim "{use.key}" once it is gone: it is being deleted'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(_recreated(claim),))
    elif use.ephemeral and not is_owned_by(claim, scene.pod):
        text = f'delete PersistentVolumeClaim "{use.key}", which is not the pod\'s; it is then created for the pod'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(owned_by(_recreated(claim), scene.pod),))
    elif claim.phase == LOST or (claim.volume_name and snapshot.volume(claim.volume_name) is None):
        yield _restore_volume(scene, claim)
    elif ROLLBACK in claim.meta.annotations:
        text = f'let the rollback of PersistentVolumeClaim "{use.key}" end (volsched schedule)'
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=(_recreated(claim),))
    elif not is_fully_bound(claim):
        yield from _let_wait_for_pod(scene, claim)


def _create_claim(scene: RemedyScene, use: ClaimUse) -> Iterator[ClusterChange]:
    if use.ephemeral:
        claim = created_claim(scene.snapshot, scene.pod, use)
        text = f'have PersistentVolumeClaim "{use.key}" created from the pod\'s template (volsched schedule)'
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=(claim,))
        return
    classes = scene.snapshot.classes.values()
    default = default_class(classes)
    ready = [it for it in classes if it.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER]
    for class_ in sorted(ready, key=lambda it: (it is not default, it.name))[:CLASSES_TRIED]:
        claim = created_claim(scene.snapshot, scene.pod, use, class_.name)
        text = f'create PersistentVolumeClaim "{use.key}", for example {FOR_EXAMPLE} of class "{class_.name}"'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(claim,))


def created_claim(snapshot: Snapshot, pod: Pod, use: ClaimUse, class_name: str | None = None) -> Claim:
    """The claim that a remedy creates for the pod: from its template, or one for example."""
    if use.ephemeral:
        return from_template(snapshot, pod, use)
    return Claim(
        meta=Metadata(name=use.name, namespace=use.namespace),
        access_modes=(READ_WRITE_ONCE,),
        requests={"storage": FOR_EXAMPLE},
        storage_class_name=class_name,
        phase="Pending",
    )


def _let_wait_for_pod(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """Changes for an unbound claim whose class does not delay binding: only the PV controller binds it."""
    class_ = scene.snapshot.classes.get(claim.class_name)
    if claim.class_name and class_ is None:
        created = StorageClass(
            meta=Metadata(name=claim.class_name),
            provisioner=NO_PROVISIONER,
            volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
        )
        text = (
            f'create StorageClass "{claim.class_name}" with volumeBindingMode {WAIT_FOR_FIRST_CONSUMER}: '
            f"claim {claim.key} asks for it"
        )
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(created,))
    elif class_ is not None and class_.volume_binding_mode is None:
        changed = replace(class_, volume_binding_mode=WAIT_FOR_FIRST_CONSUMER)
        text = f'set volumeBindingMode of StorageClass "{class_.name}" to {WAIT_FOR_FIRST_CONSUMER}'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(changed,))
    elif class_ is None or class_.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER or claim.volume_name:
        yield from _bind_without_pod(scene, claim)


def _bind_without_pod(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    named_volume = scene.snapshot.volume(claim.volume_name) if claim.volume_name else None
    if named_volume is not None:
        rules = failed_rules(Search(claim=claim, node=None, delay_binding=False), named_volume)
        if named_volume.claim_ref is None and not list(rules):
            text = f"let the PV controller bind {claim.key} to {named_volume.name}, as it asks (volsched schedule)"
            yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=bound_pair(claim, named_volume))
        return
    volume, place = new_volume(scene, claim)
    if provisions(scene, claim):
        provisioner = scene.snapshot.classes[claim.class_name].provisioner
        text = (
            f"have provisioner {provisioner} create the volume of {claim.key} where {scene.node.name} reaches it: "
            f"its {class_text(claim)} does not wait for a pod"
        )
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=bound_pair(claim, volume))
    shape = f"add a PersistentVolume of at least {claim.size} ({class_text(claim)}, {modes_text(claim)})"
    bound, volume = bound_pair(claim, volume)
    yield ClusterChange(
        kind=ChangeKind.ADD_VOLUME,
        text=f"{shape} {place}, for {claim.key}",
        touched=(volume,),
        follows=(bound,),
        size=claim.size.value(),
        shape=f"{shape} for {claim.key}",
    )


def _restore_volume(scene: RemedyScene, claim: Claim) -> ClusterChange:
    size = max(claim.size, claim.status_capacity.get("storage", claim.size))
    volume, _ = new_volume(scene, replace(claim, requests={"storage": size}), name=claim.volume_name)
    bound, volume = bound_pair(claim, volume)
    text = (
        f'restore PersistentVolume "{claim.volume_name}" ({bytes_text(size.value())}), with a claimRef to '
        f"{claim.key} and its uid, where {scene.node.name} reaches it"
    )
    shape = f"restore {claim.volume_name}"
    size_ = size.value()
    return ClusterChange(
        kind=ChangeKind.ADD_VOLUME, text=text, touched=(volume,), follows=(bound,), size=size_, shape=shape
    )


def _recreated(claim: Claim) -> Claim:
    """The claim as it would be after it is deleted and created again."""
    meta = replace(claim.meta, annotations={}, deletion_timestamp=None)
    return replace(claim, meta=meta, volume_name="", phase="Pending")


VOLUMES_TRIED = 4


def volume_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    """Changes for the first claim that no volume serves; later claims follow once it is served."""
    assert scene.verdict is not None
    rejections = scene.verdict.status.rejections
    if not rejections:
        # An error, such as a selector that cannot be read.
        yield from _remove_bad_selectors(scene)
        return
    first = rejections[0]
    claim = scene.snapshot.claim(first.claim)
    if claim is None:
        return
    if first.reason == NODE_AFFINITY_MISMATCH:
        yield from _reach_bound_volume(scene, claim)
    elif first.reason == BOUND_TO_MISSING_VOLUME:
        yield from pod_changes(scene)
    elif any(failure.rule is Rule.SELECTED_NODE for failure in first.failures):
        yield _drop_selected_node(scene, claim)
    else:
        if first.reason == TOO_MANY_VOLUMES:
            yield from limit_changes(scene)
        yield from _serve(scene, claim, first)


def _remove_bad_selectors(scene: RemedyScene) -> Iterator[ClusterChange]:
    for claim in _claims(scene):
        if claim.selector is not None and label_selector_problem(claim.selector) is not None:
            text = f"remove the selector of claim {claim.key}, which cannot be read (recreate the claim)"
            yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=(replace(claim, selector=None),))


def _claims(scene: RemedyScene) -> list[Claim]:
    names = (it.claim_name or f"{scene.pod.name}-{it.name}" for it in scene.pod.volumes)
    claims = (scene.snapshot.claim(f"{scene.pod.namespace}/{name}") for name in names)
    return [claim for claim in claims if claim is not None]


def _reach_bound_volume(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """Changes for a claim that is bound to a volume out of the node's reach."""
    volume = scene.snapshot.volume(claim.volume_name)
    if may_go_back(scene.snapshot, scene.pod, claim):
        text = (
            f"undo the binding of {claim.key} to {claim.volume_name}, which is empty: "
            f"kubectl annotate pvc -n {claim.meta.namespace} {claim.name} pv.kubernetes.io/rollback=yes"
        )
        follows = () if volume is None else (free(volume),)
        yield ClusterChange(kind=ChangeKind.FREE, text=text, touched=(unbound(claim),), follows=follows)
    labels = None if volume is None else _labels_reaching(scene, volume)
    if labels:
        yield label_node(scene.node, labels)


def _labels_reaching(scene: RemedyScene, volume: Volume) -> dict[str, str] | None:
    """Labels with which the node would reach the volume, if they may be set."""
    affinity = volume.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    for term in terms:
        labels = {it.key: it.values[0] for it in term.match_expressions if it.operator == "In" and it.values}
        missing = {key: value for key, value in labels.items() if key not in scene.node.labels}
        if missing and may_label(scene.node, missing) and reaches(volume, with_labels(scene.node, missing)):
            return missing
    return None


def _drop_selected_node(scene: RemedyScene, claim: Claim) -> ClusterChange:
    node_name = selected_node(claim, alpha=scene.profile.reads_alpha_annotations) or ""
    annotations = {key: text for key, text in claim.meta.annotations.items() if key not in SELECTED_NODE_KEYS}
    keys = " and ".join(key for key in SELECTED_NODE_KEYS if key in claim.meta.annotations)
    note = "" if node_name in scene.snapshot.nodes else ", which does not exist"
    text = f'remove the annotation {keys} of claim {claim.key}: it says node "{node_name}"{note}'
    touched = (replace(claim, meta=replace(claim.meta, annotations=annotations)),)
    return ClusterChange(kind=ChangeKind.SELECTED_NODE, text=text, touched=touched)


def _serve(scene: RemedyScene, claim: Claim, rejection: Rejection) -> Iterator[ClusterChange]:
    if not provisions(scene, claim):
        yield _add_volume(scene, claim)
    yield from storage_changes(scene, claim, rejection)
    taken = [binding.volume.name for binding in scene.verdict.answer.bindings] if scene.verdict else []
    search = Search(
        claim=claim, node=scene.node, taken=taken, enforce_match_fields=scene.profile.enforce_match_fields
    )
    volumes = [it for _, it in sorted(scene.snapshot.stored_volumes.items())]
    tried = 0
    for near in nearest(search, volumes, len(volumes)):
        ways = ways_to_serve(scene, claim, near)
        if ways is not None:
            yield from ways
            tried += 1
        if tried == VOLUMES_TRIED:
            break


def _add_volume(scene: RemedyScene, claim: Claim) -> ClusterChange:
    volume, place = new_volume(scene, claim)
    shape = f"add a PersistentVolume of at least {claim.size} ({class_text(claim)}, {modes_text(claim)}"
    shape += f", labels {pairs_text(volume.meta.labels)})" if volume.meta.labels else ")"
    return ClusterChange(
        kind=ChangeKind.ADD_VOLUME,
        text=f"{shape} {place}, for {claim.key}",
        touched=(volume,),
        size=claim.size.value(),
        shape=f"{shape} for {claim.key}",
    )
