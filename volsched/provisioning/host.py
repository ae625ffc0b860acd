"""The host of provisioners: passes changes of the cluster to them, and publishes their capacity."""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from volsched.kube.manifest import Manifest, annotations, metadata
from volsched.kube.meta import DEFAULT_NAMESPACE, PROVISIONED_BY
from volsched.kube.storage import Claim
from volsched.log.commands import Command, Done, LeaseProof, Precondition, Scan
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.fold import NOTHING, ObjectState, living
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.rules.field_check import UndecodableError
from volsched.objects.rules.object_events import ForbiddenError, InvalidError
from volsched.provisioning.host_path import HostPath
from volsched.provisioning.protocol import Provisioner, Surroundings
from volsched.provisioning.simulated import Simulated
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World
from volsched.scheduling.rules.configuration import ConfigurationError

# Capacity is published as CSIStorageCapacity objects with a CSIDriver that enables them; both carry the driver's
# name as a label, and objects without it are not touched.

_log = logging.getLogger(__name__)

DRIVER_NAME = "csi.storage.k8s.io/drivername"
ASK_FOR_ROOM = 60 * SECOND
"""The polling interval: capacity may change without an event that we observe."""
PUBLISH_AGAIN = 1 * SECOND
LOOK_FOR_LEFTOVERS = 600 * SECOND
NEVER = 1 << 62
LETS_GO = '"volumeName":null'
API_VERSION = "storage.k8s.io/v1"


class Storage(Protocol):
    """The common interface of provisioners and drivers."""

    def observe(self, surroundings: Surroundings) -> None: ...

    def capacities(self) -> Sequence[Manifest]: ...

    def volume_names(self) -> Collection[str]: ...

    def discard(self, name: str) -> bool: ...


@dataclass(slots=True)
class Keeper:
    database: Database
    world: World
    owner: str
    storages: Mapping[str, Storage]
    """Provisioner name, as in classes and volumes → its storage."""
    new_uid: Callable[[], str]
    _known: dict[str, dict[str, ObjectState]] = field(default_factory=lambda: {noun: {} for noun in _CONCERNS})
    _volumes: dict[str, dict[str, Manifest]] = field(default_factory=dict)
    """Provisioner → name → volume."""
    _changed: dict[str, set[str]] = field(default_factory=dict)
    """Provisioner → volumes whose changes were not passed to its storage yet."""
    _nodes: list[Manifest] | None = None
    """All nodes; None: nodes have changed since the list was built."""
    _publish_at: int = NEVER
    """When to publish because a change may affect capacity."""
    _refusals: set[str] = field(default_factory=set)
    """Errors of the last publication; each is logged once."""
    _ask_at: int = 0
    _leftovers_at: int = 0
    _suspects: set[str] = field(default_factory=set)
    """Volumes that may have storage but no object."""
    _look_at_suspects: bool = False
    _wanted: dict[str, str] = field(default_factory=dict)
    """Claim stream → the volume that the controller may still request, or that the claim has."""

    def update(self, streams: Iterable[str]) -> None:
        """Read the changed objects and pass the changes to the storages."""
        if not self.storages:
            return
        changed = False
        for stream in streams:
            noun, key = noun_and_key(stream)
            if noun in _CONCERNS:
                changed |= self._update_object(noun, stream, key)
            elif noun == "claim":
                self._update_claim(stream)
                self._look_at_suspects = True
        if changed:
            self._publish_at = 0
            for name, storage in self.storages.items():
                storage.observe(self._surroundings(name))
            self._changed.clear()

    def step(self, now: int, *, busy: Callable[[], Collection[str]], lease: LeaseProof | None = None) -> int:
        """Publish changes, and periodically discard leftovers. `busy`: volumes that are being created."""
        progress = 0
        if self.storages and now >= min(self._publish_at, self._ask_at):
            self._ask_at = now + ASK_FOR_ROOM
            progress += self._publish(now, lease)
        if self.storages and now >= self._leftovers_at:
            self._leftovers_at = now + LOOK_FOR_LEFTOVERS
            self._suspects.update(name for it in self.storages.values() for name in it.volume_names())
            self._look_at_suspects = True
        if self._suspects and self._look_at_suspects:
            self._look_at_suspects = False
            progress += self._discard_leftovers(busy(), now, lease)
        return progress

    def begin(self) -> None:
        """Schedule a check of all storage for leftovers of an earlier process."""
        self._leftovers_at = 0

    def suspect(self, name: str) -> None:
        """Note that storage may exist for a volume that will have no object."""
        self._suspects.add(name)
        self._look_at_suspects = True

    def next_due(self) -> int | None:
        return None if self._publish_at == NEVER else self._publish_at

    # --- changes ----------------------------------------------------------------------------------------

    def _update_object(self, noun: str, stream: str, key: str) -> bool:
        known, state = self._known[noun], living(self.world.states, stream)
        if state is not None and not _CONCERNS[noun](state.manifest or {}, self.storages):
            state = None
        before = known.pop(key, None)
        if state is not None:
            known[key] = state
        if noun == "volume":
            self._update_volume(key, before, state)
        elif noun == "node":
            if before is not None and state is not None and _labels(before.manifest) == _labels(state.manifest):
                # Heartbeats are irrelevant here.
                return False
            self._nodes = None
        return before is not state

    def _update_volume(self, name: str, before: ObjectState | None, after: ObjectState | None) -> None:
        for state in (before, after):
            manifest = {} if state is None else state.manifest or {}
            maker = annotations(manifest).get(PROVISIONED_BY)
            if maker is not None:
                self._changed.setdefault(maker, set()).add(name)
                self._volumes.setdefault(maker, {}).pop(name, None)
                if state is after:
                    self._volumes[maker][name] = manifest

    def _surroundings(self, name: str) -> Surroundings:
        def of(noun: str) -> Iterator[Manifest]:
            return (state.manifest for _, state in sorted(self._known[noun].items()) if state.manifest is not None)

        if self._nodes is None:
            self._nodes = list(of("node"))
        return Surroundings(
            classes=[it for it in of("class") if it.get("provisioner") == name],
            nodes=self._nodes,
            volumes=self._volumes.get(name, {}),
            changed=self._changed.get(name, ()),
        )

    # --- publishing -------------------------------------------------------------------------------------

    def _publish(self, now: int, lease: LeaseProof | None) -> int:
        commands = [command.under(lease) for command in self._differences(now)]
        outcomes = execute(self.database, commands, now=now)
        done = sum(isinstance(outcome, Done) for outcome in outcomes)
        refusals = {str(it) for it in outcomes if isinstance(it, UndecodableError | InvalidError | ForbiddenError)}
        for why in sorted(refusals - self._refusals):
            _log.warning("an object published for a storage was refused: %s", why)
        self._refusals = refusals
        # Another process wrote the same object: the log will show its write.
        self._publish_at = NEVER if done == len(outcomes) else now + PUBLISH_AGAIN
        return done

    def _differences(self, now: int) -> Iterator[Command]:
        """The commands that correct the published objects."""
        wanted: dict[tuple[str, str], Manifest] = {}
        for name, storage in self.storages.items():
            published = [_published(name, capacity) for capacity in storage.capacities()]
            wanted |= {("capacity", f"{DEFAULT_NAMESPACE}/{metadata(it)['name']}"): it for it in published}
            if published:
                wanted["driver", name] = _driver(name)
        known = {(noun, key): it for noun in ("capacity", "driver") for key, it in self._known[noun].items()}
        for place, manifest in wanted.items():
            kind, state = KIND_OF_NOUN[place[0]].name, known.get(place)
            if state is None:
                if living(self.world.states, "/".join(place)) is None:
                    yield door.create(kind, manifest, door.controller(self.owner, now), uid=self.new_uid()).command
            elif (state.manifest or {}).get("capacity") != manifest.get("capacity"):
                changed = {**(state.manifest or {}), "capacity": manifest["capacity"]}
                yield door.update(kind, changed, door.controller(self.owner, now), expected=state).command
        for place, state in known.items():
            if place not in wanted:
                yield door.delete_unchanged(
                    KIND_OF_NOUN[place[0]].name, state, door.controller(self.owner, now)
                ).command

    # --- leftovers --------------------------------------------------------------------------------------

    def _discard_leftovers(self, busy: Collection[str], now: int, lease: LeaseProof | None) -> int:
        """Discard storage that a crash left without a volume, for a claim that is gone or has another volume."""
        self._suspects = {it for it in self._suspects if living(self.world.states, f"volume/{it}") is None}
        kept = {*self._wanted.values(), *busy} if self._suspects else set()
        left = {
            name: storage
            for storage in self.storages.values()
            for name in self._suspects.intersection(storage.volume_names()) - kept
        }
        if left and not self._is_up_to_date(left, now, lease):
            self._look_at_suspects = True
            return 0
        self._suspects &= kept
        return sum(_is_discarded(storage, name) for name, storage in left.items())

    def _is_up_to_date(self, left: Collection[str], now: int, lease: LeaseProof | None) -> bool:
        """Whether we have read all events about these names: an earlier process may have created their storage for
        claims or volumes that we do not know yet."""
        # Not as the owner, whose own events the scan would skip.
        actor, scan = f"{self.owner}/leftovers", Scan(self.world.position, _asking_for(left))
        precondition = Precondition(lease=lease, scan=scan)
        command = Command(actor=actor, streams=(), decide=lambda _: NOTHING, precondition=precondition)
        (outcome,) = execute(self.database, [command], now=now)
        return isinstance(outcome, Done)

    def _update_claim(self, stream: str) -> None:
        found = self.world.read(stream)
        claim = None if found is None else found[1]
        if isinstance(claim, Claim) and claim.volume_name in ("", provisioned_name(claim)):
            self._wanted[stream] = provisioned_name(claim)
        else:
            self._wanted.pop(stream, None)


def _asking_for(names: Collection[str]) -> Callable[[Event], str | None]:
    """Detects events after which storage of these names may be needed: its volume, a new or unbound claim."""
    volumes = {f"volume/{name}" for name in names}

    def outdated(event: Event) -> str | None:
        claimed = event.type == "ClaimCreated" or (event.type == "ClaimChanged" and LETS_GO in event.data)
        return f"{event.stream} has changed" if claimed or event.stream in volumes else None

    return outdated


def _is_discarded(storage: Storage, name: str) -> bool:
    """Discard storage; if it cannot be inspected, it may be in use, so it is kept and logged."""
    try:
        return storage.discard(name)
    except Exception as error:
        _log.warning("storage %s has no volume and could not be inspected, so it is kept: %s", name, error)
        return False


def _published(driver: str, capacity: Manifest) -> dict[str, Any]:
    """The capacity object as published; its name is derived from its content, so that it is found again."""
    place = [driver, capacity["storageClassName"], capacity["nodeTopology"]]
    said = hashlib.sha256(orjson.dumps(place, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    names = {"name": f"csisc-{said}", "namespace": DEFAULT_NAMESPACE, "labels": {DRIVER_NAME: _label(driver)}}
    return {"apiVersion": API_VERSION, "kind": "CSIStorageCapacity", "metadata": names, **capacity}


def _driver(name: str) -> dict[str, Any]:
    names = {"name": name, "labels": {DRIVER_NAME: _label(name)}}
    return {"apiVersion": API_VERSION, "kind": "CSIDriver", "metadata": names, "spec": {"storageCapacity": True}}


def _label(driver: str) -> str:
    return driver.replace("/", ".")


def _labels(manifest: Manifest | None) -> Manifest:
    return metadata(manifest or {}).get("labels") or {}


def _is_labelled(manifest: Manifest, storages: Mapping[str, Storage]) -> bool:
    return _labels(manifest).get(DRIVER_NAME) in {_label(name) for name in storages}


_CONCERNS: Mapping[str, Callable[[Manifest, Mapping[str, Storage]], bool]] = {
    "class": lambda manifest, storages: manifest.get("provisioner") in storages,
    "volume": lambda manifest, storages: annotations(manifest).get(PROVISIONED_BY) in storages,
    "node": lambda _manifest, _storages: True,
    "capacity": _is_labelled,
    "driver": _is_labelled,
}


# The provisioners that come with volsched.


def built_in(*, host_path_root: Path | None, store: str) -> list[Provisioner]:
    """The built-in provisioners. Directories are created only under a configured root."""
    try:
        directories = [] if host_path_root is None else [HostPath(host_path_root, store)]
    except OSError as error:
        problem = f"{host_path_root} cannot be used ({error.strerror}); name a directory that can be written"
        raise ConfigurationError([f"VOLSCHED_HOST_PATH_ROOT: {problem}"]) from error
    return [Simulated(), *directories]
