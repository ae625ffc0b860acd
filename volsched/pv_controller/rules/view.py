"""What the PV controller sees of the cluster: its own caches, kept up by watches and by its own writes.

Whoever drives a sync puts the answer of every write into the view before going on, so that a later step, and an
operation that runs after the sync, sees it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from volsched.kube.kinds import KINDS
from volsched.kube.meta import Metadata
from volsched.kube.quantity import Quantity
from volsched.kube.storage import ACCESS_MODES, Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.requests import CLAIM, VOLUME, Manifest

T = TypeVar("T", Claim, Volume, StorageClass, Pod, covariant=True)
Modes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """An object in both its forms: rules read the value, writes carry the manifest with all it holds."""

    manifest: Manifest
    value: T

    @property
    def meta(self) -> Metadata:
        return self.value.meta


def held_claim(manifest: Manifest) -> Held[Claim]:
    value = KINDS[CLAIM].read(manifest)
    assert isinstance(value, Claim)
    return Held(manifest, value)


def held_volume(manifest: Manifest) -> Held[Volume]:
    value = KINDS[VOLUME].read(manifest)
    assert isinstance(value, Volume)
    return Held(manifest, value)


def held_class(manifest: Manifest) -> Held[StorageClass]:
    value = KINDS["StorageClass"].read(manifest)
    assert isinstance(value, StorageClass)
    return Held(manifest, value)


def held_pod(manifest: Manifest) -> Held[Pod]:
    value = KINDS["Pod"].read(manifest)
    assert isinstance(value, Pod)
    return Held(manifest, value)


def mode_group(volume: Volume) -> Modes:
    """The volume's access modes, each once and in the one order that groups are named by."""
    return tuple(mode for mode in ACCESS_MODES if mode in volume.access_modes)


class View(Protocol):
    """Every question is about a key, so that a driver can answer it from an index."""

    def claim(self, key: str, /) -> Held[Claim] | None: ...

    def volume(self, name: str, /) -> Held[Volume] | None: ...

    def storage_class(self, name: str, /) -> Held[StorageClass] | None: ...

    def classes(self) -> Iterable[Held[StorageClass]]: ...

    def pods_using(self, claim_key: str, /) -> Iterable[Held[Pod]]:
        """Pods that mount the claim, by its name or as an ephemeral volume, in any state."""

    def volumes_reserved_for(self, claim_key: str, /) -> Iterable[Held[Volume]]:
        """Volumes whose claimRef names the claim, whatever uid it gives."""

    def mode_groups(self) -> Iterable[Modes]:
        """The groups of access modes (`mode_group`) that have any volume at all."""

    def free_volumes(self, class_name: str, modes: Modes, at_least: Quantity, /) -> Iterable[Held[Volume]]:
        """Volumes of the class and of exactly that group that no claimRef reserves and that are not smaller; the
        smallest first, then by name. Only as many are looked at as it takes to find one that fits."""
