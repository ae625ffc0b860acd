"""An external provisioner: a process of its own that makes volumes for claims, by nothing but conditional writes.

It follows the contract of `core.external` and has no more rights than any other client: the PV controller orders a
volume with an annotation, here it is made, and the controller completes the binding. What is under way is kept in
memory; a driver that may still be at work is asked again until it has answered, even if the claim is gone.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from volsched.kube.manifest import metadata
from volsched.kube.storage import Claim, StorageClass
from volsched.log.commands import Done
from volsched.log.database import Database
from volsched.log.events.object_states import living
from volsched.log.events.streams import noun_and_key
from volsched.objects import door
from volsched.objects.rules.refusals import AlreadyExistsError
from volsched.provisioning.client import ProvisionerClient
from volsched.provisioning.driver import CreateVolume, Driver
from volsched.provisioning.external_volumes import ExternalVolumes
from volsched.provisioning.host import Keeper
from volsched.provisioning.retry_delay import LONGEST_BACKOFF, backoff
from volsched.provisioning.rules.driver_outcomes import (
    NO_SELECTOR,
    Created,
    DriverCode,
    DriverRefusal,
    DriverVerdict,
    Next,
    judge,
)
from volsched.provisioning.rules.external_contract import made_volume, selected_node, wants_volume, without_node
from volsched.provisioning.rules.topology_requirement import (
    SelectedNode,
    TopologyError,
    TopologyRequirement,
    delayed_requirement,
    immediate_requirement,
)
from volsched.pv_controller.rules import Held
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.reasons import (
    NORMAL,
    PROVISIONING_FAILED,
    PROVISIONING_SUCCEEDED,
    WARNING,
    provisioning_failed,
)
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

RESYNC = 900 * SECOND
PROVISIONING = "Provisioning"


@dataclass(slots=True)
class _Work:
    """A claim that a volume is to be made for."""

    claim: Held[Claim]
    storage_class: Held[StorageClass]
    request: CreateVolume | None = None
    """The call that is under way. It is made again exactly so, whatever becomes of the claim and its node."""
    created: Created | None = None
    """Made, and its object is to be saved."""
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
    """Serve this node alone."""
    _works: dict[str, _Work] = field(default_factory=dict)
    """By the claim's uid."""
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
                self._volumes.look_at([key], now)
            elif noun == "class":
                self._reconsider(key, now)
                # Claims that had to do without it are not written when it comes.
                self._claims |= dict.fromkeys(self._client.names("claim"))

    def step(self, now: int) -> int:
        if now >= self._resync_at:
            self._resync_at = now + RESYNC
            self._claims |= dict.fromkeys(self._client.names("claim"))
            self._volumes.look_at(self._client.names("volume"), now)
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
        """What the class asked for could not be made; another class of the name may ask for something else."""
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
        """A new call, on what is so now; False: there is nothing to be done, or nothing that can be."""
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
        self._client.tell(claim, NORMAL, PROVISIONING, said, now)
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
            asked=work.request.bytes,
            topology=self.driver.topology,
            node_selected=work.request.pinned,
        )
        if isinstance(answer, Created):
            if verdict.delete:
                # Where that fails, the same volume is the answer to the next call, and is deleted then.
                with suppress(Exception):
                    self.driver.delete(answer.handle, now)
            else:
                work.created = answer
                return
        elif verdict.next is Next.BACKGROUND and answer.again_at is not None:
            # It said when it will be ready: nothing has failed.
            work.not_before = answer.again_at
            return
        self._judged(uid, work, verdict, now)

    def _judged(self, uid: str, work: _Work, verdict: DriverVerdict, now: int) -> None:
        """There is no volume. What follows?"""
        work.infeasible = verdict.infeasible
        work.fail(now, at_least=LONGEST_BACKOFF if verdict.infeasible else 0)
        message = provisioning_failed(work.storage_class.value.name, verdict.why)
        self._client.tell(work.claim, WARNING, PROVISIONING_FAILED, message, now)
        if verdict.next is not Next.BACKGROUND:
            work.request = None
        if verdict.next is Next.RESCHEDULE and self._give_node_back(work, now):
            del self._works[uid]

    def _give_node_back(self, work: _Work, now: int) -> bool:
        """False: the claim was changed meanwhile, and is looked at again."""
        key = work.claim.meta.key
        state = living(self.world.states, f"claim/{key}")
        if state is None or state.manifest is None or metadata(state.manifest).get("uid") != work.claim.meta.uid:
            return True
        claim = without_node(state.manifest)
        author = door.controller(self._client.actor, now)
        return self._client.has_written(
            door.update("PersistentVolumeClaim", claim, author, seen=state).command, now
        )

    def _save(self, uid: str, work: _Work, now: int) -> None:
        """Until it is saved: a volume without an object is one that nobody will ever delete."""
        assert work.created is not None
        options: Sequence[str] = work.storage_class.manifest.get("mountOptions") or ()
        volume = made_volume(
            work.claim.value, work.storage_class.value, work.created, driver=self.name, mount_options=options
        )
        author = door.controller(self._client.actor, now)
        write = door.create("PersistentVolume", volume, author, uid=self.new_uid())
        outcome = self._client.write(write.command, now)
        if isinstance(outcome, Done | AlreadyExistsError):
            said = f"Successfully provisioned volume {volume['metadata']['name']}"
            self._client.tell(work.claim, NORMAL, PROVISIONING_SUCCEEDED, said, now)
            del self._works[uid]
        else:
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
