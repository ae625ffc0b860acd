"""What an external provisioner has of the store: what it has read, and writes that are conditional on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import metadata
from volsched.kube.storage import Claim, CSINode, StorageClass
from volsched.log.commands import Command, Done, Outcome
from volsched.log.database import Database
from volsched.log.events.object_states import manifest_of
from volsched.log.events.streams import noun_and_key
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.pv_controller.rules import Held, held_claim, held_class
from volsched.runtime.world import World


@dataclass(frozen=True, slots=True)
class ProvisionerClient:
    database: Database
    world: World
    name: str
    """The provisioner that classes name."""
    new_uid: Callable[[], str]

    @property
    def actor(self) -> str:
        return f"provisioner/{self.name}"

    def write(self, command: Command, now: int) -> Outcome:
        (outcome,) = execute(self.database, [command], now=now)
        return outcome

    def has_written(self, command: Command, now: int) -> bool:
        return isinstance(self.write(command, now), Done)

    def tell(self, about: Held[Any], type_: str, reason: str, message: str, now: int) -> None:
        kind = "PersistentVolumeClaim" if isinstance(about.value, Claim) else "PersistentVolume"
        said = door.notice(
            kind, about.meta.key, door.controller(self.actor, now),
            uid=about.meta.uid, type_=type_, reason=reason, message=message,
            component=self.name,
        )  # fmt: skip
        self.write(said, now)

    def claim(self, key: str) -> Held[Claim] | None:
        manifest = manifest_of(self.world.states, f"claim/{key}")
        return None if manifest is None else held_claim(manifest)

    def storage_class(self, name: str) -> Held[StorageClass] | None:
        manifest = manifest_of(self.world.states, f"class/{name}")
        return None if manifest is None else held_class(manifest)

    def node_labels(self) -> dict[str, dict[str, str]]:
        nodes = ((name, manifest_of(self.world.states, f"node/{name}")) for name in self.names("node"))
        return {name: dict(metadata(it).get("labels") or {}) for name, it in nodes if it is not None}

    def topology_keys(self, node: str) -> tuple[str, ...] | None:
        """The driver's on that node; None: the node has no CSINode."""
        manifest = manifest_of(self.world.states, f"csinode/{node}")
        if manifest is None:
            return None
        found = KINDS["CSINode"].read(manifest)
        assert isinstance(found, CSINode)
        return next((it.topology_keys for it in found.drivers if it.name == self.name), ())

    def names(self, noun: str) -> list[str]:
        return [key for stream in self.world.states for it, key in (noun_and_key(stream),) if it == noun]
