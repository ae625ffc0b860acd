"""The PV controller's view of the cluster: its caches with their indexes, and which pods use a claim."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from volsched.kube.kinds import KINDS
from volsched.kube.meta import Metadata
from volsched.kube.quantity import Quantity
from volsched.kube.storage import ACCESS_MODES, Claim, StorageClass, Volume
from volsched.kube.workloads import TERMINATED, Pod
from volsched.pv_controller.rules.requests import CLAIM, VOLUME, Manifest
from volsched.scheduling.rules.pod_claims import claim_uses, is_owned_by

# A driver puts the result of every write into the view before it continues, so that a later step, or an
# operation after the sync, sees it.

T = TypeVar("T", Claim, Volume, StorageClass, Pod, covariant=True)
Modes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedObject(Generic[T]):
    """An object in both forms: rules read the value, writes carry the complete manifest."""

    manifest: Manifest
    value: T

    @property
    def meta(self) -> Metadata:
        return self.value.meta


def parsed_claim(manifest: Manifest) -> ParsedObject[Claim]:
    value = KINDS[CLAIM].read(manifest)
    assert isinstance(value, Claim)
    return ParsedObject(manifest, value)


def parsed_volume(manifest: Manifest) -> ParsedObject[Volume]:
    value = KINDS[VOLUME].read(manifest)
    assert isinstance(value, Volume)
    return ParsedObject(manifest, value)


def parsed_class(manifest: Manifest) -> ParsedObject[StorageClass]:
    value = KINDS["StorageClass"].read(manifest)
    assert isinstance(value, StorageClass)
    return ParsedObject(manifest, value)


def parsed_pod(manifest: Manifest) -> ParsedObject[Pod]:
    value = KINDS["Pod"].read(manifest)
    assert isinstance(value, Pod)
    return ParsedObject(manifest, value)


def mode_group(volume: Volume) -> Modes:
    """The volume's access modes, each once and in the canonical order of group names."""
    return tuple(mode for mode in ACCESS_MODES if mode in volume.access_modes)


class View(Protocol):
    """Every query has a key, so that a driver can answer it from an index."""

    def claim(self, key: str, /) -> ParsedObject[Claim] | None: ...

    def volume(self, name: str, /) -> ParsedObject[Volume] | None: ...

    def storage_class(self, name: str, /) -> ParsedObject[StorageClass] | None: ...

    def classes(self) -> Iterable[ParsedObject[StorageClass]]: ...

    def pods_using(self, claim_key: str, /) -> Iterable[ParsedObject[Pod]]:
        """Pods in any state that mount the claim, by its name or as an ephemeral volume."""

    def volumes_reserved_for(self, claim_key: str, /) -> Iterable[ParsedObject[Volume]]:
        """Volumes whose claimRef names the claim, with any uid."""

    def mode_groups(self) -> Iterable[Modes]:
        """The groups of access modes (`mode_group`) that have at least one volume."""

    def free_volumes(self, class_name: str, modes: Modes, at_least: Quantity, /) -> Iterable[ParsedObject[Volume]]:
        """Volumes of the class and of exactly that group, without a claimRef and large enough; the smallest first,
        then by name. Lazy: the caller stops at the first that fits.
        """


# The controller's private caches in memory, with the indexes that its queries need.

_READ: dict[str, Callable[[Manifest], ParsedObject[Any]]] = {
    CLAIM: parsed_claim,
    VOLUME: parsed_volume,
    "StorageClass": parsed_class,
    "Pod": parsed_pod,
}
KINDS_SEEN = tuple(_READ)
"""The kinds that the controller caches; others are read live."""


class Caches:
    """A View that receives objects one by one."""

    def __init__(self, objects: Iterable[tuple[str, Manifest]] = ()) -> None:
        self._objects: dict[str, dict[str, ParsedObject[Any]]] = {kind: {} for kind in KINDS_SEEN}
        self._pods: defaultdict[str, dict[str, ParsedObject[Pod]]] = defaultdict(dict)
        self._reserved: defaultdict[str, dict[str, ParsedObject[Volume]]] = defaultdict(dict)
        self._grouped: defaultdict[Modes, set[str]] = defaultdict(set)
        self._free: defaultdict[tuple[str, Modes], list[tuple[int, str]]] = defaultdict(list)
        for kind, manifest in objects:
            self.store(kind, manifest)

    def store(self, kind: str, manifest: Manifest) -> bool:
        """Cache an object. False: it is older than the cached one, and must not be synced. The same version
        passes, so that a periodic resync is not lost.
        """
        return self.put(kind, _READ[kind](manifest))

    def put(self, kind: str, new: ParsedObject[Any]) -> bool:
        """The same as `store`, for a parsed object."""
        old = self._objects[kind].get(new.meta.key)
        if old is not None and _version(old) > _version(new):
            return False
        if old is not None:
            self._unindex(old)
        self._objects[kind][new.meta.key] = new
        self._index(new)
        return True

    def drop(self, kind: str, key: str) -> ParsedObject[Any] | None:
        """Remove an object, and return it; it may name objects to sync now (`protection`)."""
        old = self._objects[kind].pop(key, None)
        if old is not None:
            self._unindex(old)
        return old

    def object_of(self, kind: str, key: str) -> ParsedObject[Any] | None:
        return self._objects[kind].get(key)

    def keys(self, kind: str) -> list[str]:
        return sorted(self._objects[kind])

    # --- the view ---------------------------------------------------------------------------------------

    def claim(self, key: str) -> ParsedObject[Claim] | None:
        return self._objects[CLAIM].get(key)

    def volume(self, name: str) -> ParsedObject[Volume] | None:
        return self._objects[VOLUME].get(name)

    def storage_class(self, name: str) -> ParsedObject[StorageClass] | None:
        return self._objects["StorageClass"].get(name)

    def classes(self) -> Iterable[ParsedObject[StorageClass]]:
        return self._objects["StorageClass"].values()

    def pods_using(self, claim_key: str) -> Iterable[ParsedObject[Pod]]:
        return _entries(self._pods, claim_key)

    def volumes_reserved_for(self, claim_key: str) -> Iterable[ParsedObject[Volume]]:
        return _entries(self._reserved, claim_key)

    def mode_groups(self) -> Iterable[Modes]:
        return tuple(self._grouped)

    def free_volumes(self, class_name: str, modes: Modes, at_least: Quantity) -> Iterable[ParsedObject[Volume]]:
        by_size = self._free.get((class_name, modes), [])
        first = bisect_left(by_size, (at_least.nano, ""))
        return (self._objects[VOLUME][name] for _, name in islice(by_size, first, None))

    # --- indexes ----------------------------------------------------------------------------------------

    def _index(self, cached: ParsedObject[Any]) -> None:
        key, value = cached.meta.key, cached.value
        for index, entry in self._places(value):
            index[entry][key] = cached
        if isinstance(value, Volume):
            self._grouped[mode_group(value)].add(key)
            if value.claim_ref is None:
                insort(self._free[_shelf(value)], _by_size(value))

    def _unindex(self, parsed: ParsedObject[Any]) -> None:
        key, value = parsed.meta.key, parsed.value
        for index, entry in self._places(value):
            del index[entry][key]
            _forget_if_empty(index, entry)
        if isinstance(value, Volume):
            self._grouped[mode_group(value)].discard(key)
            _forget_if_empty(self._grouped, mode_group(value))
            if value.claim_ref is None:
                by_size = self._free[_shelf(value)]
                del by_size[bisect_left(by_size, _by_size(value))]
                _forget_if_empty(self._free, _shelf(value))

    def _places(self, value: Any) -> Iterator[tuple[defaultdict[str, Any], str]]:
        if isinstance(value, Pod):
            for claim_key in {use.key for use in claim_uses(value)}:
                yield self._pods, claim_key
        elif isinstance(value, Volume) and value.claim_ref is not None:
            yield self._reserved, f"{value.claim_ref.namespace}/{value.claim_ref.name}"


def _shelf(volume: Volume) -> tuple[str, Modes]:
    return volume.class_name, mode_group(volume)


def _by_size(volume: Volume) -> tuple[int, str]:
    return volume.size.nano, volume.name


def _forget_if_empty(index: defaultdict[Any, Any], entry: Any) -> None:
    """Remove an empty entry, which must not count as a group, nor accumulate."""
    if not index[entry]:
        del index[entry]


def _entries(index: defaultdict[str, dict[str, Any]], entry: str) -> list[Any]:
    """Read with `get`: a query must not leave an empty entry behind."""
    return list(index.get(entry, {}).values())


def _version(parsed: ParsedObject[Any]) -> int:
    return int(parsed.meta.resource_version or 0)


# The pods that use a claim, by state.


def is_terminated(pod: ParsedObject[Pod]) -> bool:
    """Whether the pod has finished, or is being deleted and runs no container."""
    if pod.value.phase in TERMINATED:
        return True
    return pod.meta.being_deleted and not any(_runs(status) for status in _container_statuses(pod))


def waiting_pods(pods: Iterable[ParsedObject[Pod]]) -> list[str]:
    """Names of the pods that are not scheduled yet."""
    return sorted(pod.meta.name for pod in pods if not is_terminated(pod) and not pod.value.node_name)


def active_pods(pods: Iterable[ParsedObject[Pod]]) -> list[str]:
    return sorted(pod.meta.key for pod in pods if not is_terminated(pod))


def placed_pods(pods: Iterable[ParsedObject[Pod]]) -> list[str]:
    """Keys of the pods that have a node and have not finished: they may be using the data."""
    return sorted(pod.meta.key for pod in pods if not is_terminated(pod) and pod.value.node_name)


def protects(pod: ParsedObject[Pod], claim: Claim) -> bool:
    """Whether the pod protects the claim from deletion.

    A pod with a node does, even when it has finished, because its volumes may still be mounted. A pod that makes
    the claim from a template no longer does once it is shut down: its claim is deleted with it.
    """
    if not pod.value.node_name:
        return False
    for use in claim_uses(pod.value):
        if use.key == claim.key and (
            not use.ephemeral or (is_owned_by(claim, pod.value) and not _is_shut_down(pod))
        ):
            return True
    return False


def _is_shut_down(pod: ParsedObject[Pod]) -> bool:
    return pod.meta.being_deleted and pod.manifest["metadata"].get("deletionGracePeriodSeconds") == 0


def _container_statuses(pod: ParsedObject[Pod]) -> Iterable[Manifest]:
    statuses: Iterable[Manifest] = (pod.manifest.get("status") or {}).get("containerStatuses") or ()
    return statuses


def _runs(status: Manifest) -> bool:
    state = status.get("state") or {}
    return "waiting" not in state and "terminated" not in state
