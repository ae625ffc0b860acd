"""Remedies for a node on which the volumes of a pod's claims are the problem."""

from collections.abc import Iterator
from dataclasses import replace

from volsched.binding.rules.rollback_request import free, may_go_back, unbound
from volsched.kube.claim_reference import reaches
from volsched.kube.meta import SELECTED_NODE_KEYS
from volsched.kube.selectors import label_selector_problem
from volsched.kube.storage import Claim, Volume
from volsched.questions.explain.near_misses import nearest
from volsched.questions.explain.remedies_nodes import label_node, limit_changes, may_label
from volsched.questions.explain.remedies_pods import pod_changes
from volsched.questions.explain.remedies_reuse import made_to_serve
from volsched.questions.explain.remedies_scene import (
    RemedyScene,
    class_text,
    modes_text,
    new_volume,
    pairs_text,
    provisions,
    with_labels,
)
from volsched.questions.explain.remedies_storage import storage_changes
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.scheduling.rules.matching import Search
from volsched.scheduling.rules.pod_claims import selected_node
from volsched.scheduling.rules.rejection import Rejection, Rule
from volsched.scheduling.rules.status import BOUND_TO_MISSING_VOLUME, NODE_AFFINITY_MISMATCH, TOO_MANY_VOLUMES

VOLUMES_TRIED = 4


def volume_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    """For the claim that decided; those after it come when it is served."""
    assert scene.verdict is not None
    rejections = scene.verdict.status.rejections
    if not rejections:
        # An error, such as a selector that cannot be read.
        yield from _unreadable(scene)
        return
    first = rejections[0]
    claim = scene.snapshot.claim(first.claim)
    if claim is None:
        return
    if first.reason == NODE_AFFINITY_MISMATCH:
        yield from _misplaced(scene, claim)
    elif first.reason == BOUND_TO_MISSING_VOLUME:
        yield from pod_changes(scene)
    elif any(failure.rule is Rule.SELECTED_NODE for failure in first.failures):
        yield _promise_dropped(scene, claim)
    else:
        if first.reason == TOO_MANY_VOLUMES:
            yield from limit_changes(scene)
        yield from _unserved(scene, claim, first)


def _unreadable(scene: RemedyScene) -> Iterator[ClusterChange]:
    for claim in _claims(scene):
        if claim.selector is not None and label_selector_problem(claim.selector) is not None:
            text = f"remove the selector of claim {claim.key}, which cannot be read (make the claim anew)"
            yield ClusterChange(kind=ChangeKind.RELAX, text=text, touched=(replace(claim, selector=None),))


def _claims(scene: RemedyScene) -> list[Claim]:
    names = (it.claim_name or f"{scene.pod.name}-{it.name}" for it in scene.pod.volumes)
    found = (scene.snapshot.claim(f"{scene.pod.namespace}/{name}") for name in names)
    return [claim for claim in found if claim is not None]


def _misplaced(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """Bound to a volume that the node does not reach."""
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
    """Labels with which the node would be where the volume is, if it may be given them."""
    affinity = volume.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    for term in terms:
        labels = {it.key: it.values[0] for it in term.match_expressions if it.operator == "In" and it.values}
        missing = {key: value for key, value in labels.items() if key not in scene.node.labels}
        if missing and may_label(scene.node, missing) and reaches(volume, with_labels(scene.node, missing)):
            return missing
    return None


def _promise_dropped(scene: RemedyScene, claim: Claim) -> ClusterChange:
    promised = selected_node(claim, alpha=scene.profile.reads_alpha_annotations) or ""
    annotations = {key: text for key, text in claim.meta.annotations.items() if key not in SELECTED_NODE_KEYS}
    named = " and ".join(key for key in SELECTED_NODE_KEYS if key in claim.meta.annotations)
    why = "" if promised in scene.snapshot.nodes else ", which does not exist"
    text = f'remove the annotation {named} of claim {claim.key}: it says node "{promised}"{why}'
    touched = (replace(claim, meta=replace(claim.meta, annotations=annotations)),)
    return ClusterChange(kind=ChangeKind.SELECTED_NODE, text=text, touched=touched)


def _unserved(scene: RemedyScene, claim: Claim, rejection: Rejection) -> Iterator[ClusterChange]:
    if not provisions(scene, claim):
        yield _added(scene, claim)
    yield from storage_changes(scene, claim, rejection)
    given = [binding.volume.name for binding in scene.verdict.answer.bindings] if scene.verdict else []
    search = Search(
        claim=claim, node=scene.node, taken=given, enforce_match_fields=scene.profile.enforce_match_fields
    )
    volumes = [it for _, it in sorted(scene.snapshot.stored_volumes.items())]
    made = 0
    for near in nearest(search, volumes, len(volumes)):
        change = made_to_serve(scene, claim, near)
        if change is not None:
            yield from change
            made += 1
        if made == VOLUMES_TRIED:
            break


def _added(scene: RemedyScene, claim: Claim) -> ClusterChange:
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
