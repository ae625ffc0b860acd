"""The controller's private caches in memory, with the indexes that its questions need."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from volsched.kube.quantity import Quantity
from volsched.kube.storage import Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.requests import CLAIM, VOLUME, Manifest
from volsched.pv_controller.rules.view import (
    Held,
    Modes,
    held_claim,
    held_class,
    held_pod,
    held_volume,
    mode_group,
)
from volsched.scheduling.rules.pod_claims import claim_uses

_READ: dict[str, Callable[[Manifest], Held[Any]]] = {
    CLAIM: held_claim,
    VOLUME: held_volume,
    "StorageClass": held_class,
    "Pod": held_pod,
}
KINDS_SEEN = tuple(_READ)
"""The kinds that the controller keeps; what else it needs it reads live."""


class Caches:
    """A View that is fed objects one by one."""

    def __init__(self, objects: Iterable[tuple[str, Manifest]] = ()) -> None:
        self._held: dict[str, dict[str, Held[Any]]] = {kind: {} for kind in KINDS_SEEN}
        self._pods: defaultdict[str, dict[str, Held[Pod]]] = defaultdict(dict)
        self._reserved: defaultdict[str, dict[str, Held[Volume]]] = defaultdict(dict)
        self._grouped: defaultdict[Modes, set[str]] = defaultdict(set)
        self._free: defaultdict[tuple[str, Modes], list[tuple[int, str]]] = defaultdict(list)
        for kind, manifest in objects:
            self.store(kind, manifest)

    def store(self, kind: str, manifest: Manifest) -> bool:
        """False: the object is older than what is held, and must not be synced. The same version passes, so that
        a periodic resync is not lost."""
        return self.put(kind, _READ[kind](manifest))

    def put(self, kind: str, new: Held[Any]) -> bool:
        """`store`, of what is read already."""
        old = self._held[kind].get(new.meta.key)
        if old is not None and _version(old) > _version(new):
            return False
        if old is not None:
            self._unindex(old)
        self._held[kind][new.meta.key] = new
        self._index(new)
        return True

    def drop(self, kind: str, key: str) -> Held[Any] | None:
        """What was held; it may name objects to be synced now (`protection`)."""
        old = self._held[kind].pop(key, None)
        if old is not None:
            self._unindex(old)
        return old

    def held(self, kind: str, key: str) -> Held[Any] | None:
        return self._held[kind].get(key)

    def keys(self, kind: str) -> list[str]:
        return sorted(self._held[kind])

    # --- the view ---------------------------------------------------------------------------------------

    def claim(self, key: str) -> Held[Claim] | None:
        return self._held[CLAIM].get(key)

    def volume(self, name: str) -> Held[Volume] | None:
        return self._held[VOLUME].get(name)

    def storage_class(self, name: str) -> Held[StorageClass] | None:
        return self._held["StorageClass"].get(name)

    def classes(self) -> Iterable[Held[StorageClass]]:
        return self._held["StorageClass"].values()

    def pods_using(self, claim_key: str) -> Iterable[Held[Pod]]:
        return _entries(self._pods, claim_key)

    def volumes_reserved_for(self, claim_key: str) -> Iterable[Held[Volume]]:
        return _entries(self._reserved, claim_key)

    def mode_groups(self) -> Iterable[Modes]:
        return tuple(self._grouped)

    def free_volumes(self, class_name: str, modes: Modes, at_least: Quantity) -> Iterable[Held[Volume]]:
        by_size = self._free.get((class_name, modes), [])
        first = bisect_left(by_size, (at_least.nano, ""))
        return (self._held[VOLUME][name] for _, name in islice(by_size, first, None))

    # --- indexes ----------------------------------------------------------------------------------------

    def _index(self, held: Held[Any]) -> None:
        key, value = held.meta.key, held.value
        for index, entry in self._places(value):
            index[entry][key] = held
        if isinstance(value, Volume):
            self._grouped[mode_group(value)].add(key)
            if value.claim_ref is None:
                insort(self._free[_shelf(value)], _by_size(value))

    def _unindex(self, held: Held[Any]) -> None:
        key, value = held.meta.key, held.value
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
    """What once had an entry must not count as a group, nor pile up."""
    if not index[entry]:
        del index[entry]


def _entries(index: defaultdict[str, dict[str, Any]], entry: str) -> list[Any]:
    """By `get`: a question must not leave an empty entry behind."""
    return list(index.get(entry, {}).values())


def _version(held: Held[Any]) -> int:
    return int(held.meta.resource_version or 0)
