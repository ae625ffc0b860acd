"""A cluster as it would be with objects that are not in it: what admission and controllers would make of them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from volsched.kube.kinds import KINDS, Object
from volsched.kube.meta import OwnerReference
from volsched.kube.storage import AVAILABLE, Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.matching import is_unseen
from volsched.scheduling.rules.pod_claims import ClaimUse, claim_uses, default_class, with_default_classes
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot, snapshot_of


def index_of(objects: Iterable[Object], *, profile: Profile) -> Index:
    """An index of a dump or of manifests alone."""
    index = Index(profile=profile)
    lay_over(index, objects)
    index.settle()
    return index


def lay_over(index: Index, objects: Iterable[Object]) -> None:
    """Put the objects; claims get the default class, pods the claims that their templates ask for, and volumes
    that nobody has looked at yet are Available: manifests that people write say nothing of that.
    """
    values = [_taken_up(it) for it in objects]
    classes = {**index.snapshot.classes, **{it.name: it for it in values if isinstance(it, StorageClass)}}
    given = with_default_classes(replace(snapshot_of(values), classes=classes))
    for name in FIELD_OF.values():
        for value in getattr(given, name).values():
            index.put(value)
    for value in values:
        if isinstance(value, Pod):
            for claim in ephemeral_claims(index.snapshot, value):
                index.put(claim)


def _taken_up(value: Object) -> Object:
    """A volume as the PV controller makes it, where that is certain: one that names no claim."""
    if isinstance(value, Volume) and is_unseen(value):
        return replace(value, phase=AVAILABLE)
    return value


def ephemeral_claims(snapshot: Snapshot, pod: Pod) -> Iterator[Claim]:
    """The claims that the pod's templates ask for and that nobody has made yet."""
    for use in claim_uses(pod):
        if use.ephemeral and use.key not in snapshot.stored_claims:
            yield from_template(snapshot, pod, use)


def from_template(snapshot: Snapshot, pod: Pod, use: ClaimUse) -> Claim:
    """The claim as the ephemeral volume controller would make it."""
    name = use.name.removeprefix(f"{pod.name}-")
    template = next(it.claim_template for it in pod.volumes if it.name == name) or {}
    metadata = {"name": use.name, "namespace": use.namespace}
    made = KINDS["PersistentVolumeClaim"].read({"metadata": metadata, "spec": template.get("spec", {})})
    assert isinstance(made, Claim)
    default = default_class(snapshot.classes.values())
    if not made.has_class and default is not None:
        made = replace(made, storage_class_name=default.name)
    return owned_by(made, pod)


def owned_by(claim: Claim, pod: Pod) -> Claim:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.meta.uid, controller=True)
    return replace(claim, meta=replace(claim.meta, owner_references=(owner,)))
