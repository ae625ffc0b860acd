"""The assumption overlay: what was decided but is not written yet, laid over what is stored.

An assumption counts only while the stored object still has the resourceVersion it was made on: equality, not
order. So a foreign change silently drops it, and our own successful write replaces it without a moment in which
the object looks free. Every operation answers a new overlay; nothing is changed in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from volsched.kube.storage import Claim, Volume
from volsched.scheduling.rules.status import AttemptError

T = TypeVar("T", Volume, Claim)


# No slots: a frozen generic dataclass with slots cannot be instantiated as Overlay[Volume]() before Python 3.12.
@dataclass(frozen=True)
class Overlay(Generic[T]):
    assumed: Mapping[str, T] = field(default_factory=dict)

    def effective(self, stored: T) -> T:
        """The assumed version of a stored object where one is in force, else the stored one."""
        if not self.assumed:
            return stored
        assumed = self.assumed.get(stored.key)
        if assumed is not None and assumed.meta.resource_version == stored.meta.resource_version:
            return assumed
        return stored

    def assume(self, changed: T, *, stored: T | None) -> "Overlay[T]":
        """Lay `changed` over the stored object; refuse one made on another version."""
        if stored is None:
            raise AttemptError(f'could not find v1.{_KIND_OF[type(changed)]} "{changed.key}"')
        if stored.meta.resource_version != changed.meta.resource_version:
            raise AttemptError(
                f'"{changed.key}" is out of sync '
                f"(stored: {stored.meta.resource_version}, assume: {changed.meta.resource_version})"
            )
        return Overlay({**self.assumed, changed.key: changed})

    def restore(self, changed: T) -> "Overlay[T]":
        """Drop the assumption made on the version that `changed` carries; anything else is left alone."""
        assumed = self.assumed.get(changed.key)
        if assumed is None or assumed.meta.resource_version != changed.meta.resource_version:
            return self
        return self._without(changed.key)

    def observe(self, key: str, stored: T | None) -> "Overlay[T]":
        """The store reports a version (None = deleted): an assumption made on another one is dropped."""
        assumed = self.assumed.get(key)
        if assumed is None:
            return self
        if stored is not None and stored.meta.resource_version == assumed.meta.resource_version:
            return self
        return self._without(key)

    def _without(self, key: str) -> "Overlay[T]":
        return Overlay({name: value for name, value in self.assumed.items() if name != key})


_KIND_OF: Mapping[type, str] = {Volume: "PersistentVolume", Claim: "PersistentVolumeClaim"}
