"""An external provisioner: a separate process that creates and deletes volumes by conditional writes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import metadata, spec
from volsched.kube.meta import EXTERNAL_PROVISIONER_FINALIZER
from volsched.kube.storage import Claim, CSINode, StorageClass
from volsched.log.commands import Command, ConflictError, Done, Outcome
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, living, manifest_of
from volsched.log.events.streams import noun_and_key
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.object_write import Author
from volsched.objects.rules.object_events import AlreadyExistsError
from volsched.provisioning.host import Keeper
from volsched.provisioning.protocol import CreateVolume, Driver
from volsched.provisioning.rules import (
    NO_SELECTOR,
    Created,
    DriverCode,
    DriverRefusal,
    DriverVerdict,
    Next,
    SelectedNode,
    TopologyError,
    TopologyRequirement,
    delayed_requirement,
    guarding,
    immediate_requirement,
    is_to_be_deleted,
    judge,
    new_volume_manifest,
    selected_node,
    wants_volume,
)
from volsched.pv_controller.rules import ParsedObject, parsed_claim, parsed_class, parsed_volume
from volsched.pv_controller.rules.bind_writes import with_finalizers, without_selected_node
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.reasons import (
    NORMAL,
    PROVISIONING_FAILED,
    PROVISIONING_SUCCEEDED,
    VOLUME_FAILED_DELETE,
    WARNING,
    provisioning_failed,
    saved_later,
)
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

# An external provisioner's access to the store: reads, and writes that are conditional on them.


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

    def notify(self, about: ParsedObject[Any], type_: str, reason: str, message: str, now: int) -> None:
        kind = "PersistentVolumeClaim" if isinstance(about.value, Claim) else "PersistentVolume"
        said = door.notice(
            kind, about.meta.key, door.controller(self.actor, now),
            uid=about.meta.uid, type_=type_, reason=reason, message=message,
            component=self.name,
        )  # fmt: skip
        self.write(said, now)

    def claim(self, key: str) -> ParsedObject[Claim] | None:
        manifest = manifest_of(self.world.states, f"claim/{key}")
        return None if manifest is None else parsed_claim(manifest)

    def storage_class(self, name: str) -> ParsedObject[StorageClass] | None:
        manifest = manifest_of(self.world.states, f"class/{name}")
        return None if manifest is None else parsed_class(manifest)

    def node_labels(self) -> dict[str, dict[str, str]]:
        nodes = ((name, manifest_of(self.world.states, f"node/{name}")) for name in self.names("node"))
        return {name: dict(metadata(it).get("labels") or {}) for name, it in nodes if it is not None}

    def topology_keys(self, node: str) -> tuple[str, ...] | None:
        """The driver's topology keys on that node; None: the node has no CSINode."""
        manifest = manifest_of(self.world.states, f"csinode/{node}")
        if manifest is None:
            return None
        found = KINDS["CSINode"].read(manifest)
        assert isinstance(found, CSINode)
        return next((it.topology_keys for it in found.drivers if it.name == self.name), ())

    def names(self, noun: str) -> list[str]:
        return [key for stream in self.world.states for it, key in (noun_and_key(stream),) if it == noun]


# The backoff of an external provisioner; it retries without limit.

FIRST_BACKOFF = 1 * SECOND
LONGEST_BACKOFF = 300 * SECOND


def backoff(failures: int) -> int:
    """The wait after this many consecutive failures."""
    return min(FIRST_BACKOFF << min(failures - 1, 16), LONGEST_BACKOFF)


# The volumes of an external provisioner: guarded while they are bound, deleted when they are released.


@dataclass(slots=True)
class ExternalVolumes:
    client: ProvisionerClient
    driver: Driver
    _due: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def schedule(self, names: Iterable[str], now: int) -> None:
        self._due |= dict.fromkeys(names, now)

    def step(self, now: int) -> int:
        names = [name for name, due in self._due.items() if due <= now]
        for name in names:
            del self._due[name]
            self._examine(name, now)
        return len(names)

    def next_due(self) -> int | None:
        return min(self._due.values(), default=None)

    def _examine(self, name: str, now: int) -> None:
        state = living(self.client.world.states, f"volume/{name}")
        if state is None or state.manifest is None:
            self._failures.pop(name, None)
            return
        volume = parsed_volume(state.manifest)
        finalizers = guarding(volume.value, driver=self.client.name)
        if is_to_be_deleted(volume.value, driver=self.client.name):
            self._delete(name, state, now)
        elif finalizers != volume.meta.finalizers:
            guarded = with_finalizers(state.manifest, finalizers)
            write = door.update("PersistentVolume", guarded, self._author(now), expected=state)
            if not self.client.has_written(write.command, now):
                self._due[name] = now + backoff(1)

    def _author(self, now: int) -> Author:
        return door.controller(self.client.actor, now)

    def _delete(self, name: str, state: ObjectState, now: int) -> None:
        """Delete the storage, then the object, then our finalizer, which removes the object."""
        if not self.client.has_written(door.unchanged({f"volume/{name}": state.rv}, actor=self.client.actor), now):
            # Another process has just written it; the log will show its write.
            return
        manifest = state.manifest or {}
        try:
            refused = self.driver.delete(str((spec(manifest).get("csi") or {}).get("volumeHandle", "")), now)
        except Exception as error:
            refused = DriverRefusal(DriverCode.NOT_GRPC, f"{type(error).__name__}: {error}")
        if refused is not None:
            self.client.notify(parsed_volume(manifest), WARNING, VOLUME_FAILED_DELETE, refused.message, now)
            self._failures[name] = self._failures.get(name, 0) + 1
            self._due[name] = refused.again_at or now + backoff(self._failures[name])
        elif "deletionTimestamp" not in metadata(manifest):
            deletion = door.delete_unchanged("PersistentVolume", state, self._author(now))
            self.client.has_written(deletion.command, now)
        else:
            left = [it for it in metadata(manifest)["finalizers"] if it != EXTERNAL_PROVISIONER_FINALIZER]
            freed = with_finalizers(manifest, left)
            update = door.update("PersistentVolume", freed, self._author(now), expected=state)
            self.client.has_written(update.command, now)


# It follows the contract in `provisioning.rules` and has no more rights than any other client: the PV
# controller requests a volume with an annotation, this code creates it, and the controller completes the binding.
# Work in progress is kept in memory; a driver that may still be at work is called again until it returns a final
# answer, even if the claim is gone.

RESYNC = 900 * SECOND
PROVISIONING = "Provisioning"


@dataclass(slots=True)
class _Work:
    """A claim that needs a volume."""

    claim: ParsedObject[Claim]
    storage_class: ParsedObject[StorageClass]
    request: CreateVolume | None = None
    """The call in flight. It is repeated unchanged, even if the claim or its node changes."""
    created: Created | None = None
    """The volume, created but without a saved object."""
    failures: int = 0
    not_before: int = 0
    infeasible: bool = False

    def fail(self, now: int, *, at_least: int = 0) -> None:
        self.failures += 1
        self.not_before = now + max(backoff(self.failures), at_least)


@dataclass(slots=True)
class External:
    database: Database
    world: World
    name: str
    """The provisioner that classes name."""
    driver: Driver
    new_uid: Callable[[], str]
    strict_topology: bool = False
    immediate_topology: bool = True
    own_node: str | None = None
    """Serve only this node."""
    _works: dict[str, _Work] = field(default_factory=dict)
    """Claim's uid → its work."""
    _claims: dict[str, None] = field(default_factory=dict)
    _resync_at: int = 0
    _client: ProvisionerClient = field(init=False)
    _volumes: ExternalVolumes = field(init=False)
    _keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self._client = client = ProvisionerClient(self.database, self.world, self.name, self.new_uid)
        self._volumes = ExternalVolumes(client, self.driver)
        storages = {self.name: self.driver}
        self._keeper = Keeper(self.database, self.world, client.actor, storages, self.new_uid)

    def update(self, streams: Iterable[str], now: int) -> None:
        streams = tuple(streams)
        self._keeper.update(streams)
        for stream in streams:
            noun, key = noun_and_key(stream)
            if noun == "claim":
                self._claims[key] = None
            elif noun == "volume":
                self._volumes.schedule([key], now)
            elif noun == "class":
                self._reconsider(key, now)
                # Claims that lacked the class do not change when it is created.
                self._claims |= dict.fromkeys(self._client.names("claim"))

    def step(self, now: int) -> int:
        if now >= self._resync_at:
            self._resync_at = now + RESYNC
            self._claims |= dict.fromkeys(self._client.names("claim"))
            self._volumes.schedule(self._client.names("volume"), now)
        self._take_up(now)
        due = [uid for uid, work in self._works.items() if work.not_before <= now]
        for uid in due:
            self._go_on(uid, self._works[uid], now)
        progress = len(due) + self._volumes.step(now)
        return progress + self._keeper.step(now, busy=self._making)

    def next_due(self) -> int | None:
        waits = (self._volumes.next_due(), *(work.not_before for work in self._works.values()))
        return min((due for due in waits if due is not None), default=None)

    # --- claims -----------------------------------------------------------------------------------------

    def _take_up(self, now: int) -> None:
        for key in self._claims:
            claim = self._client.claim(key)
            uid = "" if claim is None else claim.meta.uid
            if claim is None or uid in self._works:
                continue
            storage_class = self._client.storage_class(claim.value.class_name)
            if storage_class is not None and self._wants(claim.value, storage_class.value):
                self._works[uid] = _Work(claim, storage_class, not_before=now)
        self._claims.clear()

    def _wants(self, claim: Claim, storage_class: StorageClass | None) -> bool:
        if living(self.world.states, f"volume/{provisioned_name(claim)}") is not None:
            return False
        return wants_volume(claim, storage_class, driver=self.name, own_node=self.own_node)

    def _reconsider(self, class_name: str, now: int) -> None:
        """Retry infeasible work if the class was recreated, perhaps with other parameters."""
        for work in self._works.values():
            held = work.storage_class.value
            found = self._client.storage_class(class_name) if held.name == class_name and work.infeasible else None
            if found is not None and found.meta.uid != held.meta.uid:
                work.not_before = now

    def _go_on(self, uid: str, work: _Work, now: int) -> None:
        if work.created is None:
            if work.request is None and not self._begin(uid, work, now):
                return
            self._call(uid, work, now)
        if work.created is not None and uid in self._works:
            self._save(uid, work, now)

    def _begin(self, uid: str, work: _Work, now: int) -> bool:
        """Start a new call from the current state; False: nothing to do, or impossible."""
        claim = self._client.claim(work.claim.meta.key)
        storage_class = None if claim is None else self._client.storage_class(claim.value.class_name)
        if (
            claim is None
            or storage_class is None
            or claim.meta.uid != uid
            or not self._wants(claim.value, storage_class.value)
        ):
            del self._works[uid]
            return False
        work.claim, work.storage_class = claim, storage_class
        said = f'External provisioner is provisioning volume for claim "{claim.meta.key}"'
        self._client.notify(claim, NORMAL, PROVISIONING, said, now)
        if claim.value.selector is not None:
            self._judged(uid, work, DriverVerdict(next=Next.FINISHED, why=NO_SELECTOR), now)
            return False
        try:
            requirement = self._requirement(claim.value, storage_class.value)
        except TopologyError as error:
            follows = Next.RESCHEDULE if error.reschedule else Next.FINISHED
            self._judged(uid, work, DriverVerdict(next=follows, why=str(error)), now)
            return False
        work.request = CreateVolume(
            name=provisioned_name(claim.value),
            bytes=claim.value.size.value(),
            class_name=storage_class.value.name,
            parameters=storage_class.value.parameters,
            requirement=requirement,
            pinned=selected_node(claim.value) != "",
        )
        return True

    def _call(self, uid: str, work: _Work, now: int) -> None:
        assert work.request is not None
        try:
            answer = self.driver.create(work.request, now)
        except Exception as error:
            answer = DriverRefusal(DriverCode.NOT_GRPC, f"{type(error).__name__}: {error}")
        verdict = judge(
            answer,
            wanted_bytes=work.request.bytes,
            topology=self.driver.topology,
            node_selected=work.request.pinned,
        )
        if isinstance(answer, Created):
            if verdict.delete:
                # If the deletion fails, the next call returns the same volume, which is then deleted.
                with suppress(Exception):
                    self.driver.delete(answer.handle, now)
            else:
                work.created = answer
                return
        elif verdict.next is Next.BACKGROUND and answer.again_at is not None:
            # The driver named the time when it will be ready: not a failure.
            work.not_before = answer.again_at
            return
        self._judged(uid, work, verdict, now)

    def _judged(self, uid: str, work: _Work, verdict: DriverVerdict, now: int) -> None:
        """Act on a verdict without a volume."""
        work.infeasible = verdict.infeasible
        work.fail(now, at_least=LONGEST_BACKOFF if verdict.infeasible else 0)
        message = provisioning_failed(work.storage_class.value.name, verdict.why)
        self._client.notify(work.claim, WARNING, PROVISIONING_FAILED, message, now)
        if verdict.next is not Next.BACKGROUND:
            work.request = None
        if verdict.next is Next.RESCHEDULE and self._give_node_back(work, now):
            del self._works[uid]

    def _give_node_back(self, work: _Work, now: int) -> bool:
        """Remove the claim's selected node; False: the claim was changed meanwhile, retry."""
        key = work.claim.meta.key
        state = living(self.world.states, f"claim/{key}")
        if state is None or state.manifest is None or metadata(state.manifest).get("uid") != work.claim.meta.uid:
            return True
        claim = without_selected_node(state.manifest)
        author = door.controller(self._client.actor, now)
        return self._client.has_written(
            door.update("PersistentVolumeClaim", claim, author, expected=state).command, now
        )

    def _save(self, uid: str, work: _Work, now: int) -> None:
        """Save the volume's object; repeated until it succeeds, as a volume without one would never be deleted."""
        assert work.created is not None
        options: Sequence[str] = work.storage_class.manifest.get("mountOptions") or ()
        volume = new_volume_manifest(
            work.claim.value, work.storage_class.value, work.created, driver=self.name, mount_options=options
        )
        author = door.controller(self._client.actor, now)
        # No surroundings are read: the topology is already node affinity, and the claim was read here, though the
        # log may have archived it since.
        write = door.create("PersistentVolume", volume, author, uid=self.new_uid())
        outcome = self._client.write(write.command, now)
        if isinstance(outcome, Done | AlreadyExistsError):
            said = f"Successfully provisioned volume {volume['metadata']['name']}"
            self._client.notify(work.claim, NORMAL, PROVISIONING_SUCCEEDED, said, now)
            del self._works[uid]
        else:
            if not isinstance(outcome, ConflictError):
                message = provisioning_failed(work.storage_class.value.name, saved_later(str(outcome)))
                self._client.notify(work.claim, WARNING, PROVISIONING_FAILED, message, now)
            work.fail(now)

    def _requirement(self, claim: Claim, storage_class: StorageClass) -> TopologyRequirement | None:
        if not self.driver.topology:
            return None
        nodes, allowed = self._client.node_labels(), storage_class.allowed_topologies
        node, keys_of = selected_node(claim), self._client.topology_keys
        if node:
            selected = SelectedNode(name=node, labels=nodes.get(node), keys=keys_of(node))
            return delayed_requirement(
                selected, strict=self.strict_topology, allowed=allowed, nodes=nodes.values()
            )
        keys = next((keys for name in sorted(self._client.names("csinode")) if (keys := keys_of(name))), ())
        return immediate_requirement(
            keys,
            allowed=allowed,
            nodes=nodes.values(),
            claim_name=claim.name,
            immediate_topology=self.immediate_topology,
        )

    def _making(self) -> frozenset[str]:
        return frozenset(provisioned_name(work.claim.value) for work in self._works.values())
