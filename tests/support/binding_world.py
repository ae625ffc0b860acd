"""Binding transactions stepped by hand: a real store, real executors, objects in our log or in a foreign cluster.

`World` speaks of nodes, volumes, claims, pods and plans. The test plays everybody else: the PV controller, a
provisioner, a thief, a user who deletes things. After every step the store is verified from its log again.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Literal

from sqlalchemy import Table, select

from tests.support.armed_faults import DiedError, armed, die
from tests.support.binding_truths import violations, wrong_commit
from volsched.binding.executor import QUEUES, Executor, ExecutorProgress
from volsched.binding.recovery import Sweep
from volsched.binding.rules import saga
from volsched.binding.rules.phases import ALL_GUARDS, Guards
from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.binding.rules.saga import advance, context_of
from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.local import LocalCluster
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import Cluster, whole
from volsched.cluster.simulated import SimulatedCluster
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, HOSTNAME, PROVISIONED_BY
from volsched.kube.patches import merged
from volsched.log import tables
from volsched.log.batch import load_states
from volsched.log.commands import Command, Done, Outcome, Precondition
from volsched.log.database import Database
from volsched.log.events.envelope import Event, NewEvent
from volsched.log.events.fold import BindingState, Decision, ObjectState, States, binding_stream, version
from volsched.log.events.streams import KIND_OF_NOUN, noun_and_key
from volsched.log.integrity.verify import verify
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.runtime.fault_points import Fault

NOW = 1_800_000_000_000_000
TIMEOUT = 600 * SECOND
LEASE = 30 * SECOND
Manifest = dict[str, Any]
Where = Literal["local", "foreign"]


def on_host(host: str) -> Manifest:
    match = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}


def joining(binding: str) -> PlannedLeg:
    """In place of a volume: the claim is another binding's to bind."""
    return PlannedLeg(claim="", claim_uid="", volume=None, rv="", joins=binding)


class World:
    def __init__(self, database: Database, where: Where = "local", *, guards: Guards = ALL_GUARDS) -> None:
        self.database = database
        self.where = where
        self.now = NOW
        # A test that takes longer than a lease, because the machine is busy, is not a holder that renews nothing.
        database.observer.clock = lambda: self.now
        self.guards = guards
        self.react = partial(advance, guards=guards)
        self.dirty: dict[str, tuple[str, str]] = {}
        """Uid of a claim → its key, and the volume that holds its data."""
        self.stolen: set[str] = set()
        self.wrong_commits: list[str] = []
        self.checking = True
        self._checked = -1
        self._committed: set[str] = set()
        uids = itertools.count(1)
        local = LocalCluster(
            database, append=lambda command: self.do(command)[0], new_uid=lambda: f"uid-{next(uids)}",
            now_text=lambda: "2027-01-15T08:00:00Z",
        )  # fmt: skip
        api = ForeignApi(now_text=lambda: "2027-01-15T08:00:00Z")
        self.others: LocalCluster | ForeignApi = local if where == "local" else api
        """Where everybody else writes."""
        self.simulated = SimulatedCluster(api, Random(0))
        self.cluster: Cluster = local if where == "local" else self.simulated
        self.mirror = Mirror(database, self.simulated, react=self.react)
        self.sweeper = Sweep(database, owner="sweep", react=self.react)
        self.workers: dict[str, Executor] = {}

    # Objects ------------------------------------------------------------------------------------------
    def create(self, kind: str, manifest: Manifest) -> None:
        made = self.others.create(kind, manifest)
        if "status" in manifest:
            self.others.update(kind, {**made, "status": manifest["status"]}, status=True)
        self.sync()

    def node(self, name: str) -> None:
        self.create("Node", {"metadata": {"name": name, "labels": {HOSTNAME: name}}})

    def volume(self, name: str, host: str = "n1", **spec: Any) -> None:
        full = {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": on_host(host), **spec,
        }  # fmt: skip
        self.create(
            "PersistentVolume", {"metadata": {"name": name}, "spec": full, "status": {"phase": "Available"}}
        )

    def claim(self, name: str) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        }  # fmt: skip
        self.create("PersistentVolumeClaim", {"metadata": {"name": name, "namespace": "db"}, "spec": spec})

    def pod(self, name: str) -> None:
        containers = [{"name": "main", "image": "app"}]
        self.create("Pod", {"metadata": {"name": name, "namespace": "db"}, "spec": {"containers": containers}})

    def patch(self, stream: str, patch: Mapping[str, Any], *, status: bool = False) -> None:
        """Somebody else writes the object."""
        kind, key = _kind_and_key(stream)
        found = self.others.get(kind, key)
        assert found is not None
        self.others.update(kind, merged(found, patch), status=status)
        self.sync()

    def annotate(self, stream: str, **annotations: str | None) -> None:
        self.patch(stream, {"metadata": {"annotations": annotations}})

    def vanish(self, stream: str) -> None:
        """Deleted, and nothing keeps it."""
        kind, key = _kind_and_key(stream)
        self.patch(stream, {"metadata": {"finalizers": None}})
        self.others.delete(kind, key)
        self.sync()

    def shown(self, stream: str) -> Manifest | None:
        """The object as it really is."""
        found = self.others.get(*_kind_and_key(stream))
        return None if found is None else dict(found)

    def must_show(self, stream: str) -> Manifest:
        found = self.shown(stream)
        assert found is not None
        return found

    def state(self, stream: str) -> ObjectState:
        """The object as our views have it."""
        state = self.states(stream)[stream]
        assert isinstance(state, ObjectState)
        return state

    def states(self, *streams: str) -> States:
        with self.database.read() as connection:
            return load_states(self.database, connection, streams)[0]

    def sync(self) -> None:
        """What happened in a foreign cluster becomes known."""
        while self.where == "foreign" and self.mirror.step(self.now):
            pass
        self.check()

    # Everybody else -----------------------------------------------------------------------------------
    def complete(self, claim: str, volume: str | None = None, *, data_state: str | None = "Clean") -> None:
        """The PV controller binds the claim to the volume that points at it; in our own log as one command."""
        name = volume or self.pointing_at(claim)
        assert name is not None
        bound = {
            "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"volumeName": name},
        }  # fmt: skip
        status = {"status": {"phase": "Bound"} | ({} if data_state is None else {"dataState": data_state})}
        if self.where == "local":
            uid = self.must_show(f"claim/{claim}")["metadata"]["uid"]
            namespace, _, short = claim.partition("/")
            reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": short, "uid": uid}
            events = (
                changed(f"volume/{name}", {"spec": {"claimRef": reference}, "status": {"phase": "Bound"}}),
                changed(f"claim/{claim}", {**bound, **status}),
            )
            self.do(append(*events, actor="pv-controller"))
            return
        self.patch(f"volume/{name}", {"status": {"phase": "Bound"}}, status=True)
        self.patch(f"claim/{claim}", bound)
        self.patch(f"claim/{claim}", status, status=True)

    def provision(self, claim: str, *, host: str = "n1", name: str = "pvc-1") -> str:
        """The provisioner makes the volume that the claim asks for."""
        uid = self.must_show(f"claim/{claim}")["metadata"]["uid"]
        namespace, _, short = claim.partition("/")
        reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": short, "uid": uid}
        self.volume(name, host, claimRef=reference)
        self.annotate(f"volume/{name}", **{PROVISIONED_BY: "csi.example.com"})
        return name

    def steal(self, volume: str) -> None:
        """A foreign writer gives the volume to a claim of its own, and does not know of our stamp."""
        thief = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "thief", "uid": "uid-thief"}
        self.patch(f"volume/{volume}", {"spec": {"claimRef": thief}})
        self.stolen.add(volume)

    def reset(self, volume: str) -> None:
        """Somebody takes the claimRef off, whoever's it is."""
        self.stolen.discard(volume)
        self.patch(f"volume/{volume}", {"spec": {"claimRef": None}})

    def soil(self, claim: str) -> None:
        """A node agent is about to mount the claim."""
        self.patch(f"claim/{claim}", {"status": {"dataState": "Dirty"}}, status=True)
        found = self.must_show(f"claim/{claim}")
        if found["spec"].get("volumeName"):
            self.dirty[found["metadata"]["uid"]] = (claim, found["spec"]["volumeName"])

    def pointing_at(self, claim: str) -> str | None:
        """The volume whose claimRef is this claim."""
        found = self.shown(f"claim/{claim}")
        for volume in whole(self.others.list("PersistentVolume")).objects:
            reference = volume["spec"].get("claimRef") or {}
            if found is not None and reference.get("uid") == found["metadata"]["uid"]:
                return str(volume["metadata"]["name"])
        return None

    # Bindings -----------------------------------------------------------------------------------------
    def planned(
        self, binding: str, pod: str, legs: Mapping[str, str | PlannedLeg | None], *, node: str = "n1", **kw: Any
    ) -> Command:
        """A plan on what the views say now: claim → volume, None to provision, or `joining` another binding."""
        streams = [f"claim/{claim}" for claim in legs]
        streams += [f"volume/{volume}" for volume in legs.values() if isinstance(volume, str)]
        states = self.states(f"pod/{pod}", *streams)
        entries = tuple(self._leg(claim, volume, states) for claim, volume in legs.items())
        uid = _uid(states.get(f"pod/{pod}"))
        kw = {"deadline": self.now + TIMEOUT, **kw}
        request = Plan(binding=binding, pod=pod, pod_uid=uid, node=node, legs=entries, decided_at=0, **kw)
        return Command(actor="scheduler", streams=request.streams, decide=partial(plan, request))

    def _leg(self, claim: str, volume: str | PlannedLeg | None, states: States) -> PlannedLeg:
        uid = _uid(states.get(f"claim/{claim}"))
        if isinstance(volume, PlannedLeg):
            return replace(volume, claim=claim, claim_uid=uid)
        written = states.get(f"claim/{claim}" if volume is None else f"volume/{volume}")
        rv = version(written) if isinstance(written, ObjectState) else ""
        return PlannedLeg(claim=claim, claim_uid=uid, volume=volume, rv=rv)

    def plan(self, binding: str, pod: str, legs: Mapping[str, str | PlannedLeg | None], **kw: Any) -> None:
        self.do(self.planned(binding, pod, legs, **kw))

    def say(self, binding: str, decide: Callable[[States], Decision], **kw: Any) -> Outcome:
        """Give a command to a binding, whatever becomes of it."""
        held = self.states(binding_stream(binding)).get(binding_stream(binding))
        context = context_of(held, {}) if isinstance(held, BindingState) else ()
        streams = (binding_stream(binding), *context)
        return self.attempt(
            Command(actor="test", streams=streams, decide=decide, precondition=Precondition(**kw))
        )[0]

    def fail(self, binding: str, reason: str = "an operator said so") -> None:
        self.say(binding, partial(saga.fail, binding, reason))

    def binding(self, binding: str) -> BindingState:
        state = self.states(binding_stream(binding))[binding_stream(binding)]
        assert isinstance(state, BindingState)
        return state

    def phase(self, binding: str) -> str:
        return self.binding(binding).state

    def legs(self, binding: str) -> list[str]:
        return [leg.state for leg in self.binding(binding).legs]

    def rows(self, table: Table) -> list[Mapping[str, Any]]:
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(select(table)).mappings()]

    def events(self, binding: str | None = None) -> list[Event]:
        events = tables.events
        asked = select(events).order_by(events.c.position)
        if binding is not None:
            asked = asked.where(events.c.stream == binding_stream(binding))
        with self.database.read() as connection:
            return [Event._make(row) for row in connection.execute(asked)]

    def effects(self) -> set[str]:
        return {row["key"] for row in self.rows(tables.effects)}

    # Steps --------------------------------------------------------------------------------------------
    def attempt(self, *commands: Command) -> list[Outcome]:
        outcomes = execute(self.database, commands, now=self.now, react=self.react)
        self.check()
        return outcomes

    def do(self, *commands: Command) -> list[Done]:
        outcomes = self.attempt(*commands)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Done)]

    def worker(self, name: str = "w1") -> Executor:
        return self.workers.setdefault(
            name,
            Executor(self.database, self.cluster, owner=name, guards=self.guards, react=self.react, lease=LEASE),
        )

    def step(self, queue: str, worker: str = "w1") -> ExecutorProgress:
        progress = self.worker(worker).step(queue, self.now)
        self.sync()
        return progress

    def run(self, worker: str = "w1", *, steps: int = 60) -> None:
        """Everything that can be done without anybody else moving."""
        for _ in range(steps):
            if not sum((self.step(queue, worker) for queue in QUEUES), start=ExecutorProgress()):
                return
        raise AssertionError(f"workers still find something to do after {steps} rounds")

    def sweep(self) -> None:
        self.sweeper.step(self.now)
        self.sync()

    def crash(self, queue: str, point: str, worker: str = "w1", *, times: int = 1) -> bool:
        """A worker dies at the n-th time that it comes to this place; answers whether it did."""
        with armed(Fault(point, die, times)):
            try:
                self.worker(worker).step(queue, self.now)
            except DiedError:
                died = True
            else:
                died = False
        self.sync()
        return died

    def let_leases_run_out(self) -> None:
        self.now += LEASE + 1

    # Truths -------------------------------------------------------------------------------------------
    def check(self) -> None:
        """The log, folded, is what the views say; and what is committed now is committed rightly."""
        with self.database.read() as connection:
            position = read_head(connection).position
        if not self.checking or position == self._checked:
            return
        self._checked = position
        assert verify(self.database).findings == []
        for row in self.rows(tables.bindings):
            if row["state"] == "committed" and row["id"] not in self._committed:
                self._committed.add(row["id"])
                self.wrong_commits += wrong_commit(self, row["id"])

    def violations(self) -> list[str]:
        return [*self.wrong_commits, *violations(self)]


def append(*events: NewEvent, actor: str = "test") -> Command:
    streams = tuple(dict.fromkeys(event.stream for event in events))
    return Command(actor=actor, streams=streams, decide=lambda _: Decision(events=events))


def changed(stream: str, patch: Mapping[str, Any]) -> NewEvent:
    title = noun_and_key(stream)[0].capitalize()
    return NewEvent(stream=stream, type=f"{title}Changed", data={"patch": patch})


def _kind_and_key(stream: str) -> tuple[str, str]:
    noun, key = noun_and_key(stream)
    return KIND_OF_NOUN[noun].name, key


def _uid(state: object) -> str:
    manifest = state.manifest if isinstance(state, ObjectState) else None
    return "" if manifest is None else str(manifest["metadata"].get("uid", ""))
