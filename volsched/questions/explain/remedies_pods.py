"""Remedies for a pod that is refused before any node is looked at: a claim, class or volume is not there."""

from collections.abc import Iterator
from dataclasses import replace

from volsched.kube.meta import ROLLBACK, Metadata
from volsched.kube.quantity import parse_quantity
from volsched.kube.storage import LOST, NO_PROVISIONER, WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass
from volsched.questions.explain.remedies_scene import (
    RemedyScene,
    class_text,
    completed,
    modes_text,
    new_volume,
    provisions,
    size_text,
)
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.questions.simulate.hypothetical import from_template, owned_by
from volsched.scheduling.rules.matching import Search, failed_rules
from volsched.scheduling.rules.pod_claims import ClaimUse, claim_uses, default_class, is_fully_bound, is_owned_by

FOR_EXAMPLE = parse_quantity("1Gi")
CLASSES_TRIED = 3
READ_WRITE_ONCE = "ReadWriteOnce"


def pod_changes(scene: RemedyScene) -> Iterator[ClusterChange]:
    """For the first of its claims with which something is wrong."""
    for use in claim_uses(scene.pod):
        found = list(_claim_changes(scene, use))
        if found:
            yield from found
            return


def _claim_changes(scene: RemedyScene, use: ClaimUse) -> Iterator[ClusterChange]:
    snapshot = scene.snapshot
    claim = snapshot.claim(use.key)
    if claim is None:
        yield from _missing(scene, use)
    elif claim.meta.being_deleted:
        text = f'make PersistentVolumeClaim "{use.key}" anew once it is gone: it is being deleted'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(_fresh(claim),))
    elif use.ephemeral and not is_owned_by(claim, scene.pod):
        text = f'delete PersistentVolumeClaim "{use.key}", which is not the pod\'s; it is then made for the pod'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(owned_by(_fresh(claim), scene.pod),))
    elif claim.phase == LOST or (claim.volume_name and snapshot.volume(claim.volume_name) is None):
        yield _brought_back(scene, claim)
    elif ROLLBACK in claim.meta.annotations:
        text = f'let the rollback of PersistentVolumeClaim "{use.key}" end (volsched schedule)'
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=(_fresh(claim),))
    elif not is_fully_bound(claim):
        yield from _unbound(scene, claim)


def _missing(scene: RemedyScene, use: ClaimUse) -> Iterator[ClusterChange]:
    if use.ephemeral:
        made = from_template(scene.snapshot, scene.pod, use)
        text = f'have PersistentVolumeClaim "{use.key}" made from the pod\'s template (volsched schedule)'
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=(made,))
        return
    classes = scene.snapshot.classes.values()
    first = default_class(classes)
    ready = [it for it in classes if it.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER]
    for held in sorted(ready, key=lambda it: (it is not first, it.name))[:CLASSES_TRIED]:
        made = Claim(
            meta=Metadata(name=use.name, namespace=use.namespace),
            access_modes=(READ_WRITE_ONCE,),
            requests={"storage": FOR_EXAMPLE},
            storage_class_name=held.name,
            phase="Pending",
        )
        text = f'create PersistentVolumeClaim "{use.key}", for example {FOR_EXAMPLE} of class "{held.name}"'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(made,))


def _unbound(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    """Somebody else has to bind it: it does not wait for a pod."""
    held = scene.snapshot.classes.get(claim.class_name)
    if claim.class_name and held is None:
        made = StorageClass(
            meta=Metadata(name=claim.class_name),
            provisioner=NO_PROVISIONER,
            volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
        )
        text = (
            f'create StorageClass "{claim.class_name}" with volumeBindingMode {WAIT_FOR_FIRST_CONSUMER}: '
            f"claim {claim.key} asks for it"
        )
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(made,))
    elif held is not None and held.volume_binding_mode is None:
        changed = replace(held, volume_binding_mode=WAIT_FOR_FIRST_CONSUMER)
        text = f'set volumeBindingMode of StorageClass "{held.name}" to {WAIT_FOR_FIRST_CONSUMER}'
        yield ClusterChange(kind=ChangeKind.CREATE, text=text, touched=(changed,))
    elif held is None or held.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER or claim.volume_name:
        yield from _not_waiting(scene, claim)


def _not_waiting(scene: RemedyScene, claim: Claim) -> Iterator[ClusterChange]:
    asked = scene.snapshot.volume(claim.volume_name) if claim.volume_name else None
    if asked is not None:
        rules = failed_rules(Search(claim=claim, node=None, delay_binding=False), asked)
        if asked.claim_ref is None and not list(rules):
            text = f"let the PV controller bind {claim.key} to {asked.name}, as it asks (volsched schedule)"
            yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=completed(claim, asked))
        return
    volume, place = new_volume(scene, claim)
    if provisions(scene, claim):
        provisioner = scene.snapshot.classes[claim.class_name].provisioner
        text = (
            f"have provisioner {provisioner} make the volume of {claim.key} where {scene.node.name} reaches it: "
            f"its {class_text(claim)} does not wait for a pod"
        )
        yield ClusterChange(kind=ChangeKind.CONTROLLER, text=text, follows=completed(claim, volume))
    shape = f"add a PersistentVolume of at least {claim.size} ({class_text(claim)}, {modes_text(claim)})"
    bound, volume = completed(claim, volume)
    yield ClusterChange(
        kind=ChangeKind.ADD_VOLUME,
        text=f"{shape} {place}, for {claim.key}",
        touched=(volume,),
        follows=(bound,),
        size=claim.size.value(),
        shape=f"{shape} for {claim.key}",
    )


def _brought_back(scene: RemedyScene, claim: Claim) -> ClusterChange:
    size = max(claim.size, claim.status_capacity.get("storage", claim.size))
    volume, _ = new_volume(scene, replace(claim, requests={"storage": size}), name=claim.volume_name)
    bound, volume = completed(claim, volume)
    text = (
        f'bring PersistentVolume "{claim.volume_name}" ({size_text(size.value())}) back, with a claimRef to '
        f"{claim.key} and its uid, where {scene.node.name} reaches it"
    )
    shape = f"bring {claim.volume_name} back"
    size_ = size.value()
    return ClusterChange(
        kind=ChangeKind.ADD_VOLUME, text=text, touched=(volume,), follows=(bound,), size=size_, shape=shape
    )


def _fresh(claim: Claim) -> Claim:
    """As it was when it was made."""
    meta = replace(claim.meta, annotations={}, deletion_timestamp=None)
    return replace(claim, meta=meta, volume_name="", phase="Pending")
