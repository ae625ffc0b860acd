"""The volumes of an external provisioner: guarded while they are bound, deleted when they are released."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from volsched.kube.manifest import metadata, spec
from volsched.kube.meta import EXTERNAL_PROVISIONER_FINALIZER
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_states import living
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.provisioning.client import ProvisionerClient
from volsched.provisioning.driver import Driver
from volsched.provisioning.retry_delay import backoff
from volsched.provisioning.rules.driver_outcomes import DriverCode, DriverRefusal
from volsched.provisioning.rules.external_contract import guarding, is_to_be_deleted
from volsched.pv_controller.rules import held_volume
from volsched.pv_controller.rules.manifest_edits import with_finalizers
from volsched.pv_controller.rules.reasons import VOLUME_FAILED_DELETE, WARNING


@dataclass(slots=True)
class ExternalVolumes:
    client: ProvisionerClient
    driver: Driver
    _due: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def look_at(self, names: Iterable[str], now: int) -> None:
        self._due |= dict.fromkeys(names, now)

    def step(self, now: int) -> int:
        names = [name for name, due in self._due.items() if due <= now]
        for name in names:
            del self._due[name]
            self._look_after(name, now)
        return len(names)

    def next_due(self) -> int | None:
        return min(self._due.values(), default=None)

    def _look_after(self, name: str, now: int) -> None:
        state = living(self.client.world.states, f"volume/{name}")
        if state is None or state.manifest is None:
            self._failures.pop(name, None)
            return
        volume = held_volume(state.manifest)
        finalizers = guarding(volume.value, driver=self.client.name)
        if is_to_be_deleted(volume.value, driver=self.client.name):
            self._delete(name, state, now)
        elif finalizers != volume.meta.finalizers:
            guarded = with_finalizers(state.manifest, finalizers)
            write = door.update("PersistentVolume", guarded, self._author(now), seen=state)
            if not self.client.has_written(write.command, now):
                self._due[name] = now + backoff(1)

    def _author(self, now: int) -> Author:
        return door.controller(self.client.actor, now)

    def _delete(self, name: str, state: ObjectState, now: int) -> None:
        """The storage, then the object, then our finalizer, by which the object goes."""
        if not self.client.has_written(door.unchanged({f"volume/{name}": state.rv}, actor=self.client.actor), now):
            # Somebody has just written it; the log will tell.
            return
        manifest = state.manifest or {}
        try:
            refused = self.driver.delete(str((spec(manifest).get("csi") or {}).get("volumeHandle", "")), now)
        except Exception as error:
            refused = DriverRefusal(DriverCode.NOT_GRPC, f"{type(error).__name__}: {error}")
        if refused is not None:
            self.client.tell(held_volume(manifest), WARNING, VOLUME_FAILED_DELETE, refused.message, now)
            self._failures[name] = self._failures.get(name, 0) + 1
            self._due[name] = refused.again_at or now + backoff(self._failures[name])
        elif "deletionTimestamp" not in metadata(manifest):
            deletion = door.delete_seen("PersistentVolume", state, self._author(now))
            self.client.has_written(deletion.command, now)
        else:
            left = [it for it in metadata(manifest)["finalizers"] if it != EXTERNAL_PROVISIONER_FINALIZER]
            freed = with_finalizers(manifest, left)
            update = door.update("PersistentVolume", freed, self._author(now), seen=state)
            self.client.has_written(update.command, now)
