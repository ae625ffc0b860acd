"""Changes to a cluster, as values, and the cluster after them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from volsched.kube.kinds import KINDS
from volsched.kube.meta import OwnerReference
from volsched.kube.object_values import Object
from volsched.kube.storage import AVAILABLE, Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.matching import is_unseen
from volsched.scheduling.rules.pod_claims import ClaimUse, claim_uses, default_class, with_default_classes
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import FIELD_OF, Snapshot, snapshot_of

V = TypeVar("V")
KIND_OF_VALUE = {kind.value: kind.name for kind in KINDS.values()}


class ChangeKind(StrEnum):
    """Kinds of changes, from free ones to those that delete something: of equal changes, the earlier kind wins."""

    CONTROLLER = "controller"
    """No change: a controller has to finish its work."""
    SELECTED_NODE = "remove-selected-node"
    REJECTED_NODE = "forget-rejection"
    UNCORDON = "uncordon"
    RELEASE = "release-volume"
    FREE = "free-volume"
    CREATE = "create"
    RAISE_CAPACITY = "raise-capacity"
    ADD_VOLUME = "add-volume"
    LABEL = "label"
    TOLERATE = "tolerate"
    UNTAINT = "remove-taint"
    RELAX = "relax"
    LOWER_REQUEST = "lower-request"
    REMOVE_POD = "remove-pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    kind: ChangeKind
    text: str
    """The instruction, in words. Two changes with one text are one change."""
    touched: tuple[Object, ...] = ()
    """The changed objects, after the change."""
    removed: tuple[Object, ...] = ()
    follows: tuple[Object, ...] = ()
    """Other objects that controllers change as a consequence."""
    size: int = 0
    """Bytes of storage that are added or removed."""
    shape: str = ""
    """The same change in another place has the same shape."""

    @property
    def objects(self) -> frozenset[tuple[str, str]]:
        """Kind and key of all objects to change."""
        return frozenset((KIND_OF_VALUE[type(it)], it.meta.key) for it in (*self.touched, *self.removed))


Changes = tuple[ClusterChange, ...]


class LayeredMapping(Mapping[str, V]):
    """A mapping with some entries laid over it and some removed; nothing is copied.

    With a choice, iteration is over those keys only, though any key can be looked up.
    """

    def __init__(
        self,
        below: Mapping[str, V],
        *,
        over: Mapping[str, V] | None = None,
        without: Collection[str] = (),
        choice: Collection[str] | None = None,
    ) -> None:
        self._below, self._over = below, over or {}
        self._without, self._choice = frozenset(without), choice

    def __getitem__(self, key: str) -> V:
        if key in self._over:
            return self._over[key]
        if key in self._without:
            raise KeyError(key)
        return self._below[key]

    def __iter__(self) -> Iterator[str]:
        keys = self._below if self._choice is None else self._choice
        yield from (key for key in keys if key not in self._over and key not in self._without)
        yield from self._over

    def __len__(self) -> int:
        return sum(1 for _ in self)


def restricted_to(below: Mapping[str, V], choice: Iterable[str]) -> LayeredMapping[V]:
    return LayeredMapping(below, choice=dict.fromkeys(key for key in choice if key in below))


def snapshot_with(snapshot: Snapshot, changes: Iterable[ClusterChange]) -> Snapshot:
    """The snapshot after the changes. Its objects are effective: assumptions are laid over them already."""
    over: dict[str, dict[str, Any]] = {}
    without: dict[str, set[str]] = {}
    for change in changes:
        for value in (*change.touched, *change.follows):
            over.setdefault(FIELD_OF[type(value)], {})[value.meta.key] = value
        for value in change.removed:
            without.setdefault(FIELD_OF[type(value)], set()).add(value.meta.key)
    fields: dict[str, Any] = {
        name: LayeredMapping(getattr(snapshot, name), over=over.get(name), without=without.get(name, ()))
        for name in {**over, **without}
    }
    return replace(snapshot, **fields)


def changed_pod(pod: Pod, changes: Iterable[ClusterChange]) -> Pod:
    """The pod itself after the changes."""
    for change in changes:
        for value in change.touched:
            if isinstance(value, Pod) and value.key == pod.key:
                pod = value
    return pod


def objects_of(changes: Iterable[ClusterChange]) -> frozenset[tuple[str, str]]:
    return frozenset().union(*(change.objects for change in changes))


def weight(changes: Changes) -> tuple[int, int, int, str]:
    """The cost of the changes: by number of objects, then bytes, then kinds of change."""
    order = list(ChangeKind)
    kinds = sum(order.index(change.kind) for change in changes)
    text = "; ".join(change.text for change in changes)
    return len(objects_of(changes)), sum(change.size for change in changes), kinds, text


# A cluster with further objects, after admission and the controllers have handled them.


def index_of(objects: Iterable[Object], *, profile: Profile) -> Index:
    """An index of a dump or of manifests alone."""
    index = Index(profile=profile)
    lay_over(index, objects)
    index.settle()
    return index


def lay_over(index: Index, objects: Iterable[Object]) -> None:
    """Put the objects into the index, and complete hand-written manifests: claims get the default class, pods the
    claims of their templates, and volumes without a phase become Available.
    """
    values = [_available(it) for it in objects]
    classes = {**index.snapshot.classes, **{it.name: it for it in values if isinstance(it, StorageClass)}}
    defaulted = with_default_classes(replace(snapshot_of(values), classes=classes))
    for name in FIELD_OF.values():
        for value in getattr(defaulted, name).values():
            index.put(value)
    for value in values:
        if isinstance(value, Pod):
            for claim in ephemeral_claims(index.snapshot, value):
                index.put(claim)


def _available(value: Object) -> Object:
    """The volume after the PV controller's sync, if that is certain: without a claim it is Available."""
    if isinstance(value, Volume) and is_unseen(value):
        return replace(value, phase=AVAILABLE)
    return value


def ephemeral_claims(snapshot: Snapshot, pod: Pod) -> Iterator[Claim]:
    """The claims of the pod's templates that do not exist yet."""
    for use in claim_uses(pod):
        if use.ephemeral and use.key not in snapshot.stored_claims:
            yield from_template(snapshot, pod, use)


def from_template(snapshot: Snapshot, pod: Pod, use: ClaimUse) -> Claim:
    """The claim as the ephemeral volume controller would create it."""
    name = use.name.removeprefix(f"{pod.name}-")
    template = next(it.claim_template for it in pod.volumes if it.name == name) or {}
    metadata = {"name": use.name, "namespace": use.namespace}
    claim = KINDS["PersistentVolumeClaim"].read({"metadata": metadata, "spec": template.get("spec", {})})
    assert isinstance(claim, Claim)
    default = default_class(snapshot.classes.values())
    if not claim.has_class and default is not None:
        claim = replace(claim, storage_class_name=default.name)
    return owned_by(claim, pod)


def owned_by(claim: Claim, pod: Pod) -> Claim:
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.meta.uid, controller=True)
    return replace(claim, meta=replace(claim.meta, owner_references=(owner,)))
