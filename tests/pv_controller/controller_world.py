"""A small cluster to run the controller in: objects by name, one sync at a time, and a crash after any write."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE
from volsched.lab.conformance.controller import ObedientPlugin, VectorFault, VectorServer
from volsched.log.commands import RejectedError
from volsched.pv_controller.rules import (
    CLAIM,
    VOLSCHED,
    VOLUME,
    Caches,
    ControllerRules,
    Create,
    Delete,
    DeleteAsset,
    Enqueue,
    LiveGet,
    LivePods,
    Notice,
    PluginError,
    Provision,
    Recycle,
    Request,
    StartOperation,
    Steps,
    SyncError,
    Update,
    VolumePlugin,
    drive,
    parsed_claim,
    parsed_volume,
    protect_claim,
    protect_volume,
    sync_claim,
    sync_volume,
)
from volsched.pv_controller.rules.view import KINDS_SEEN

Manifest = dict[str, Any]
Object = tuple[str, Manifest]

DISK = VolumePlugin(name="volsched.io/disk", recycles=True, sources=frozenset({"hostPath"}))
RULES = replace(VOLSCHED, plugins={DISK.name: DISK})
"""The product's rules with one plugin of our own."""
UID = "uid-data"
KEY = "db/data"
NOW = "2026-01-01T00:00:00Z"


# --- objects --------------------------------------------------------------------------------------------


def pvc(
    name: str = "data",
    *,
    cls: str | None = "wait",
    size: str = "8Gi",
    volume: str = "",
    phase: str = "Pending",
    notes: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (),
    deleted: bool = False,
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    status: Manifest | None = None,
    uid: str | None = None,
    owners: list[Manifest] | None = None,
    **spec: Any,
) -> Object:
    metadata: Manifest = {"namespace": "db", "name": name, "uid": uid or f"uid-{name}", "annotations": notes or {}}
    metadata |= {"finalizers": list(finalizers)} if finalizers else {}
    metadata |= {"deletionTimestamp": NOW} if deleted else {}
    metadata |= {"ownerReferences": owners} if owners else {}
    body: Manifest = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    body |= {"storageClassName": cls} if cls is not None else {}
    body |= {"volumeName": volume} if volume else {}
    return CLAIM, {"metadata": metadata, "spec": body, "status": {"phase": phase, **(status or {})}}


def bound_pvc(volume: str = "pv", *, notes: dict[str, str] | None = None, clean: bool = True, **kw: Any) -> Object:
    """As a search of ours left it, not used by any pod yet."""
    marks = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes", **(notes or {})}
    status: Manifest = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}
    status |= {"dataState": "Clean"} if clean else {}
    return pvc(volume=volume, notes=marks, status=status, **{"phase": "Bound", **kw})


def pv(
    name: str = "pv",
    *,
    cls: str | None = "wait",
    size: str | None = "10Gi",
    phase: str = "Available",
    policy: str = "Retain",
    ref: Manifest | None = None,
    notes: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (),
    deleted: bool = False,
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    source: str = "hostPath",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    metadata: Manifest = {"name": name, "uid": f"uid-{name}", "annotations": notes or {}, "labels": labels or {}}
    metadata |= {"finalizers": list(finalizers)} if finalizers else {}
    metadata |= {"deletionTimestamp": NOW} if deleted else {}
    body: Manifest = {"accessModes": list(modes), "persistentVolumeReclaimPolicy": policy, **spec}
    body |= {"capacity": {"storage": size}} if size is not None else {}
    body |= {"storageClassName": cls} if cls is not None else {}
    body |= {"claimRef": ref} if ref is not None else {}
    body[source] = {"path": "/x"} if source == "hostPath" else {"driver": "csi.example.com", "volumeHandle": name}
    return VOLUME, {"metadata": metadata, "spec": body, "status": {"phase": phase}}


def provisioned_pv(name: str = f"pvc-{UID}", *, by: str = DISK.name, notes: Any = None, **kw: Any) -> Object:
    return pv(name, **{"policy": "Delete", "notes": {PROVISIONED_BY: by, **(notes or {})}, **kw})


def ref(name: str = "data", *, uid: str = UID, namespace: str = "db") -> Manifest:
    parts = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid}
    return {key: value for key, value in parts.items() if value}


def sc(
    name: str = "wait",
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    mode: str | None = "WaitForFirstConsumer",
    default: bool = False,
    policy: str = "Delete",
    made: str = NOW,
    **fields: Any,
) -> Object:
    notes = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": notes, "creationTimestamp": made}
    given = {"volumeBindingMode": mode} if mode is not None else {}
    return "StorageClass", {
        "metadata": metadata, "provisioner": provisioner, "reclaimPolicy": policy, **given, **fields
    }  # fmt: skip


def immediate(name: str = "wait", **kw: Any) -> Object:
    return sc(name, **{"mode": "Immediate", **kw})


def pod(
    name: str = "app",
    *,
    claim: str = "data",
    node: str = "",
    phase: str = "Pending",
    deleted: bool = False,
    grace: int | None = None,
    ephemeral: str = "",
    containers: list[Manifest] | None = None,
) -> Object:
    metadata: Manifest = {"namespace": "db", "name": name, "uid": f"uid-{name}"}
    metadata |= {"deletionTimestamp": NOW} if deleted else {}
    metadata |= {"deletionGracePeriodSeconds": grace} if grace is not None else {}
    entry: Manifest = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    if ephemeral:
        entry = {"name": ephemeral, "ephemeral": {"volumeClaimTemplate": {}}}
    status: Manifest = {"phase": phase}
    status |= {"containerStatuses": containers} if containers is not None else {}
    return "Pod", {"metadata": metadata, "spec": {"nodeName": node, "volumes": [entry]}, "status": status}


def node(name: str = "n1") -> Object:
    return "Node", {"metadata": {"name": name}}


def selected(on: str = "n1") -> dict[str, str]:
    return {SELECTED_NODE: on}


# --- the world ------------------------------------------------------------------------------------------


class CrashError(Exception):
    """The controller's process is gone; what it wrote is stored, what it knew is not."""


@dataclass
class World:
    rules: ControllerRules
    server: VectorServer
    plugin: ObedientPlugin
    unseen: set[tuple[str, str]] = field(default_factory=set)
    """What the controller's caches lack."""
    requests: list[Request] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    crash_after_writes: int | None = None
    run_operations: bool = True
    before_answer: Callable[["World", Request], None] | None = None
    """What the rest of the world does in the very moment before a request is answered."""
    _caches: Caches = field(default_factory=Caches)
    _started: list[Steps[None]] = field(default_factory=list)
    _writes: int = 0

    # --- acting -----------------------------------------------------------------------------------------

    def sync_claim(self, key: str = KEY) -> "World":
        return self._sync(
            lambda: sync_claim(self._caches, parsed_claim(self._object(CLAIM, key)), rules=self.rules)
        )

    def sync_volume(self, name: str = "pv") -> "World":
        return self._sync(
            lambda: sync_volume(self._caches, parsed_volume(self._object(VOLUME, name)), rules=self.rules)
        )

    def protect_claim(self, key: str = KEY) -> "World":
        return self._sync(lambda: protect_claim(self._caches, parsed_claim(self._object(CLAIM, key))))

    def protect_volume(self, name: str = "pv") -> "World":
        return self._sync(lambda: protect_volume(parsed_volume(self._object(VOLUME, name))))

    def settle(self, rounds: int = 20) -> int:
        """Rounds that changed anything, until one does not."""
        for number in range(rounds):
            before = self.server.changes
            for kind, sync in ((CLAIM, self.sync_claim), (VOLUME, self.sync_volume)):
                for key in self.server.of_kind(kind):
                    if (kind, key) in self.server.objects:
                        sync(key)
            if self.server.changes == before:
                return number
        raise AssertionError("never quiet")

    def fail(self, verb: str, resource: str, *, part: str = "*", skip: int = 0, error: str = "down") -> "World":
        self.server.faults.append(VectorFault(verb, resource, part, skip, error))
        return self

    def _sync(self, steps: Callable[[], Steps[None]]) -> "World":
        self._caches = Caches(
            (kind, manifest)
            for (kind, key), manifest in self.server.objects.items()
            if kind in KINDS_SEEN and (kind, key) not in self.unseen
        )
        self._run(steps())
        while self._started and self.run_operations:
            self._run(self._started.pop(0))
        return self

    def _run(self, steps: Steps[None]) -> None:
        try:
            drive(steps, self._answer)
        except (SyncError, RejectedError, PluginError) as error:
            self.errors.append(error)

    def _answer(self, request: Request) -> Any:
        self.requests.append(request)
        if self.before_answer is not None:
            self.before_answer(self, request)
        match request:
            case Update():
                return self._wrote(request.kind, self.server.update(request))
            case Create():
                return self._wrote(request.kind, self.server.create(request))
            case Delete():
                stored = self.server.objects.get((request.kind, request.key))
                assert stored is None or stored["metadata"]["uid"] == request.uid
                return self.server.delete(request)
            case LiveGet():
                return self.server.get(request)
            case LivePods():
                return list(self.server.of_kind("Pod").values())
            case StartOperation():
                return self._started.append(request.operation)
            case Provision() | DeleteAsset() | Recycle():
                return self.plugin.answer(request)
            case _:
                return None

    def _wrote(self, kind: str, manifest: Any) -> Any:
        self._caches.store(kind, manifest)
        self._writes += 1
        if self._writes == self.crash_after_writes:
            raise CrashError
        return parsed_claim(manifest) if kind == CLAIM else parsed_volume(manifest)

    # --- looking ----------------------------------------------------------------------------------------

    def _object(self, kind: str, key: str) -> Any:
        return self.server.objects[kind, key]

    def claim(self, key: str = KEY) -> Any:
        return parsed_claim(self._object(CLAIM, key)).value

    def volume(self, name: str = "pv") -> Any:
        return parsed_volume(self._object(VOLUME, name)).value

    def status(self, key: str = KEY) -> Any:
        return self._object(CLAIM, key)["status"]

    def has(self, kind: str, key: str) -> bool:
        return (kind, key) in self.server.objects

    @property
    def notices(self) -> list[tuple[str, str]]:
        """(type, reason), in order."""
        return [(asked.type, asked.reason) for asked in self.requests if isinstance(asked, Notice)]

    @property
    def messages(self) -> list[str]:
        return [asked.message for asked in self.requests if isinstance(asked, Notice)]

    @property
    def writes(self) -> list[tuple[str, bool]]:
        """(kind, is it the status), of every update that was asked for."""
        return [(asked.kind, asked.status) for asked in self.requests if isinstance(asked, Update)]

    @property
    def started(self) -> list[str]:
        return [asked.name for asked in self.requests if isinstance(asked, StartOperation)]

    @property
    def enqueued(self) -> list[str]:
        return [asked.key for asked in self.requests if isinstance(asked, Enqueue)]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        return self.plugin.calls


def world(*objects: Object, rules: ControllerRules = RULES, strict: bool = True, **behaviour: list[str]) -> World:
    server = VectorServer(strict=strict)
    for kind, manifest in objects:
        server.load(kind, manifest)
    return World(rules, server, ObedientPlugin(behaviour))


def crash(act: Callable[[], Any]) -> None:
    """Run it into the crash that the world was told of."""
    with suppress(CrashError):
        act()
        raise AssertionError("it did not come to the crash")
