"""One pod, its claims and volumes on a foreign cluster; a mirror and a worker of ours; a clock the test moves.

The test plays everybody else: the PV controller, a provisioner, an administrator.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import select

from tests.support.foreign import change
from tests.support.port_manifests import claim, node, pod, volume
from tests.support.store_samples import NOW
from volsched.binding.executor import QUEUES, Executor, ExecutorProgress
from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.binding.rules.saga import time_out
from volsched.cluster.mirror import Mirror
from volsched.cluster.port import Manifest
from volsched.cluster.simulated import Call, Fate, SimulatedCluster
from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, BOUND_BY_CONTROLLER, ROLLBACK, STORAGE_PROVISIONER
from volsched.log import tables
from volsched.log.batch import load_states
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, LegState, ObjectState
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND

VOLUME, CLAIM, POD, NODE = "PersistentVolume", "PersistentVolumeClaim", "Pod", "Node"
TIMEOUT = 600 * SECOND
LEASE = 30 * SECOND


class Once:
    """The first such call has this fate, all others none."""

    def __init__(self, fate: Fate, verb: str, key: str) -> None:
        self.fate, self.call, self.used = fate, (verb, key), False

    def __call__(self, call: Call) -> Fate | None:
        if self.used or (call.verb, call.key) != self.call:
            return None
        self.used = True
        return self.fate


class Scene:
    """`legs`: claim → volume, or None where one is to be provisioned."""

    def __init__(self, database: Database, cluster: SimulatedCluster, legs: Mapping[str, str | None]) -> None:
        self.database, self.cluster, self.api = database, cluster, cluster.api
        self.now, self.legs = NOW, dict(legs)
        self.api.create(NODE, node("n1"))
        self.api.create(POD, pod("app", *legs))
        for name, on in legs.items():
            self.api.create(CLAIM, claim(name))
            if on is not None:
                self.add_volume(on)
        self.mirror = Mirror(database, cluster)
        self.executor = Executor(database, cluster, "worker-1", LEASE)
        self.mirror.step(self.now)

    def add_volume(self, name: str) -> None:
        self.api.create(VOLUME, volume(name))
        change(self.api, VOLUME, name, {"status": {"phase": "Available"}}, status=True)

    # What we do ------------------------------------------------------------------------------------------

    def plan(self, binding: str = "b1", legs: Mapping[str, str | None] | None = None) -> "Scene":
        """Decide, on what the mirror shows, to bind the pod to the node with these legs."""
        chosen = self.legs if legs is None else legs
        request = Plan(
            binding=binding,
            pod="db/app",
            pod_uid=self.view("pod/db/app")["metadata"]["uid"],
            node="n1",
            legs=tuple(self._leg(name, on) for name, on in chosen.items()),
            decided_at=0,
            deadline=self.now + TIMEOUT,
            staged=True,
        )
        self.must(Command(actor="scheduler", streams=request.streams, decide=partial(plan, request)))
        return self

    def _leg(self, name: str, on: str | None) -> PlannedLeg:
        held = self.view(f"claim/db/{name}")
        written = held if on is None else self.view(f"volume/{on}")
        return PlannedLeg(
            claim=f"db/{name}",
            claim_uid=held["metadata"]["uid"],
            volume=on,
            rv=written["metadata"]["resourceVersion"],
        )

    def must(self, command: Command) -> None:
        (outcome,) = execute(self.database, [command], now=self.now)
        assert isinstance(outcome, Done), outcome

    def work(self, executor: Executor | None = None) -> None:
        """Workers do what there is to do; nothing is observed meanwhile."""
        worker = executor or self.executor
        while sum((worker.step(queue, self.now) for queue in QUEUES), start=ExecutorProgress()):
            pass

    def nominate(self) -> "Scene":
        """The first effect of a plan: the pod shows its future node, and the legs are queued."""
        assert self.executor.step("prebind", self.now).done == 1
        return self

    def observe(self) -> None:
        while self.mirror.step(self.now):
            pass

    def settle(self, turns: int = 12) -> "Scene":
        """Everybody of ours works and observes, long enough for what failed to be tried again."""
        for _ in range(turns):
            self.observe()
            self.work()
            self.observe()
            if not self.queued():
                break
            self.now += 5 * SECOND
        return self

    def pass_lease(self) -> None:
        self.now += LEASE + 1

    def pass_deadline(self, binding: str = "b1") -> None:
        self.now += TIMEOUT
        stream = f"binding/{binding}"
        decide = partial(time_out, binding, self.now)
        self.must(Command(actor="sweep", streams=(stream,), decide=lambda states: decide(states)))

    # What others do --------------------------------------------------------------------------------------

    def start_binding(self, name: str, on: str) -> None:
        """The PV controller's first half for the claim: it names its volume."""
        marks = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}}
        change(self.api, CLAIM, f"db/{name}", {"spec": {"volumeName": on}, **marks})

    def complete(self, name: str, on: str | None = None, *, data_state: str | None = "Clean") -> None:
        """The PV controller completes the binding of a claim."""
        to = on or self.legs[name]
        assert to is not None
        self.start_binding(name, to)
        change(self.api, CLAIM, f"db/{name}", {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}})
        status = {"status": {"phase": "Bound"} | ({} if data_state is None else {"dataState": data_state})}
        change(self.api, CLAIM, f"db/{name}", status, status=True)
        change(self.api, VOLUME, to, {"status": {"phase": "Bound"}}, status=True)

    def complete_all(self) -> None:
        for name, on in self.legs.items():
            if on is None:
                self.provision(name)
            else:
                self.complete(name)

    def start_provisioning(self, name: str) -> None:
        marks = {"metadata": {"annotations": {STORAGE_PROVISIONER: "disk.example.com"}}}
        change(self.api, CLAIM, f"db/{name}", marks)

    def provision(self, name: str) -> str:
        held = self.api.get(CLAIM, f"db/{name}") or {}
        made = f"pvc-{held['metadata']['uid']}"
        self.add_volume(made)
        self.take(made, name)
        self.complete(name, made)
        return made

    def take(self, on: str, name: str, *, uid: str | None = None) -> Manifest:
        """Somebody else gives the volume to a claim."""
        held = self.api.get(CLAIM, f"db/{name}")
        owner = uid or (held or {})["metadata"]["uid"]
        reference = {"kind": "PersistentVolumeClaim", "namespace": "db", "name": name, "uid": owner}
        return change(self.api, VOLUME, on, {"spec": {"claimRef": reference}})

    # What is so ------------------------------------------------------------------------------------------

    def view(self, stream: str) -> dict[str, Any]:
        with self.database.read() as connection:
            states, _ = load_states(self.database, connection, [stream])
        state = states[stream]
        assert isinstance(state, ObjectState)
        return dict(state.manifest or {})

    def has(self, stream: str) -> bool:
        with self.database.read() as connection:
            states, _ = load_states(self.database, connection, [stream])
        return stream in states

    def binding(self, binding: str = "b1") -> BindingState:
        with self.database.read() as connection:
            states, _ = load_states(self.database, connection, [f"binding/{binding}"])
        state = states[f"binding/{binding}"]
        assert isinstance(state, BindingState)
        return state

    def leg(self, index: int = 0, binding: str = "b1") -> LegState:
        return self.binding(binding).legs[index]

    def phases(self, binding: str = "b1") -> list[str]:
        return [leg.state for leg in self.binding(binding).legs]

    def writes(self, kind: str, key: str) -> int:
        """How often somebody of ours asked for a write of the object."""
        return sum(call.writes and (call.kind, call.key) == (kind, key) for call in self.cluster.calls)

    def claim_of(self, on: str) -> str | None:
        """The claim that the volume points at."""
        reference = (self.api.get(VOLUME, on) or {})["spec"].get("claimRef")
        return None if reference is None else reference["name"]

    def annotations(self, kind: str, key: str) -> dict[str, str]:
        found: dict[str, str] = (self.api.get(kind, key) or {})["metadata"].get("annotations") or {}
        return found

    def node_of_pod(self) -> str | None:
        found: str | None = (self.api.get(POD, "db/app") or {})["spec"].get("nodeName")
        return found

    def is_untouched(self, name: str, on: str) -> bool:
        """Neither claim nor volume carries anything of ours, nor do they know each other."""
        ours = {BINDING_STAMP, ROLLBACK, BOUND_BY_CONTROLLER}
        marks = {*self.annotations(VOLUME, on), *self.annotations(CLAIM, f"db/{name}")}
        unnamed = not (self.api.get(CLAIM, f"db/{name}") or {})["spec"].get("volumeName")
        return not marks & ours and self.claim_of(on) is None and unnamed

    def queued(self) -> list[str]:
        with self.database.read() as connection:
            return sorted(connection.execute(select(tables.effects.c.key)).scalars())
