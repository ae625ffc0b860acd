"""What the PV controller under `parity` does with a vector's cluster: one sync, or rounds until nothing changes.

Compared are the objects at the end and, as sets, the events and the plugin calls. In which order and by how many
writes the reference got there is not.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from volsched.kube.quantity import parse_quantity
from volsched.lab.conformance.server import ObedientPlugin, VectorServer, faults_of
from volsched.log.commands import RejectedError
from volsched.pv_controller.rules import (
    CLAIM,
    KINDS_SEEN,
    PARITY,
    VOLUME,
    Caches,
    ControllerRules,
    Create,
    Delete,
    DeleteAsset,
    Held,
    LiveGet,
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
    held_claim,
    held_volume,
    sync_claim,
    sync_volume,
)

Json = Mapping[str, Any]
MOCK = VolumePlugin(name="kubernetes.io/mock-volume", recycles=True, sources=None)
MAX_ROUNDS = 20
KIND_OF_FIELD = {
    "storageClasses": "StorageClass",
    "persistentVolumes": VOLUME,
    "persistentVolumeClaims": CLAIM,
    "pods": "Pod",
    "nodes": "Node",
}


@dataclass(slots=True)
class VectorCluster:
    """A server, a plugin, and a controller whose caches are made anew before each sync."""

    server: VectorServer
    plugin: ObedientPlugin
    rules: ControllerRules
    unseen: frozenset[str] = frozenset()
    """Objects that the controller's caches lack, as `Kind key`."""
    notices: set[tuple[str, str, str]] = field(default_factory=set)
    _caches: Caches = field(default_factory=Caches)
    _started: list[Steps[None]] = field(default_factory=list)

    def sync(self, kind: str, key: str) -> None:
        """One sync of an object, and the operations it started; a failed sync would be tried again later."""
        manifest = self.server.objects[kind, key]
        self._caches = Caches(
            (held, seen)
            for (held, name), seen in self.server.objects.items()
            if held in KINDS_SEEN and f"{held} {name}" not in self.unseen
        )
        if kind == CLAIM:
            steps = sync_claim(self._caches, held_claim(manifest), rules=self.rules)
        else:
            steps = sync_volume(self._caches, held_volume(manifest), rules=self.rules)
        self._run(steps)
        while self._started:
            self._run(self._started.pop(0))

    def settle(self, first: str, second: str) -> bool:
        """Rounds over all objects until one changes nothing; False where that never comes."""
        for _ in range(MAX_ROUNDS):
            before = self.server.changes
            for kind in (first, second):
                for key in self.server.of_kind(kind):
                    if (kind, key) in self.server.objects:
                        self.sync(kind, key)
            if self.server.changes == before:
                return True
        return False

    def _run(self, steps: Steps[None]) -> None:
        # A failure would be logged and tried again; the vectors do not compare it.
        with suppress(SyncError, RejectedError, PluginError):
            drive(steps, self._answer)

    def _answer(self, request: Request) -> Any:
        match request:
            case Update():
                return self._remembered(request.kind, self.server.update(request))
            case Create():
                return self._remembered(request.kind, self.server.create(request))
            case Delete():
                return self.server.delete(request)
            case LiveGet():
                return self.server.get(request)
            case Notice():
                return self.notices.add((f"{request.kind} {request.key}", request.type, request.reason))
            case StartOperation():
                return self._started.append(request.operation)
            case Provision():
                return self.plugin.provision(request)
            case DeleteAsset():
                return self.plugin.delete(request)
            case Recycle():
                return self.plugin.recycle(request)
            case _:
                # Time does not pass here, and every object is synced again anyway.
                return None

    def _remembered(self, kind: str, manifest: Json) -> Held[Any]:
        self._caches.store(kind, manifest)
        return held_claim(manifest) if kind == CLAIM else held_volume(manifest)


def cluster_of(case: Json, *, rules: ControllerRules = PARITY) -> VectorCluster:
    server = VectorServer(strict=case.get("apiServer") == "strict", faults=faults_of(case.get("apiErrors") or ()))
    for name, kind in KIND_OF_FIELD.items():
        for manifest in case.get(name) or ():
            server.load(kind, manifest)
    behaviour = case.get("provisionerBehaviour") or {}
    plugins = {} if behaviour.get("plugin") == "none" else {MOCK.name: MOCK}
    rules = replace(rules, plugins=plugins, provisioning=not case.get("disableDynamicProvisioning"))
    return VectorCluster(server, ObedientPlugin(behaviour), rules, unseen=frozenset(case.get("notInCache") or ()))


def controller_answer(case: Json) -> dict[str, Any]:
    """In the shape of `controller_expectation`."""
    cluster = cluster_of(case)
    converged: bool | None = None
    if case["mode"] == "settle":
        first, second = (CLAIM, VOLUME) if case["drive"] == "claims-then-volumes" else (VOLUME, CLAIM)
        converged = cluster.settle(first, second)
    elif case["mode"] == "sync":
        target = case["sync"]
        key = f"{target['namespace']}/{target['name']}" if target["kind"] == CLAIM else target["name"]
        cluster.sync(target["kind"], key)
    else:
        raise ValueError(f"mode {case['mode']!r} is neither sync nor settle")
    answered: dict[str, Any] = {
        "persistentVolumes": {
            key: _Seen(manifest).volume for key, manifest in cluster.server.of_kind(VOLUME).items()
        },
        "persistentVolumeClaims": {
            key: _Seen(manifest).claim for key, manifest in cluster.server.of_kind(CLAIM).items()
        },
        "events": sorted(map(list, cluster.notices)),
        "pluginCalls": sorted(map(list, set(cluster.plugin.calls))),
    }
    return answered if converged is None else {**answered, "converged": converged}


def controller_expectation(expected: Json) -> dict[str, Any]:
    """What of a vector's `expected` must be equal: objects by name, sets as sorted lists."""
    reduced: dict[str, Any] = {
        "persistentVolumes": {
            volume["name"]: {key: value for key, value in volume.items() if key != "message"}
            for volume in expected["persistentVolumes"]
        },
        "persistentVolumeClaims": {
            f"{claim['namespace']}/{claim['name']}": claim for claim in expected["persistentVolumeClaims"]
        },
        "events": _set_of(expected["events"], "object", "type", "reason"),
        "pluginCalls": _set_of(expected["pluginCalls"], "call", "volume", "result"),
    }
    return {**reduced, "converged": expected["converged"]} if "converged" in expected else reduced


def _set_of(entries: list[Json], *fields: str) -> list[list[str]]:
    return sorted(map(list, {tuple(entry[name] for name in fields) for entry in entries}))


@dataclass(frozen=True)
class _Seen:
    """A manifest in the vectors' own shape, in which absent fields have agreed values."""

    manifest: Json

    @cached_property
    def _parts(self) -> tuple[Json, Json, Json]:
        return self.manifest["metadata"], self.manifest["spec"], self.manifest.get("status") or {}

    @property
    def volume(self) -> dict[str, Any]:
        metadata, spec, status = self._parts
        ref = spec.get("claimRef")
        parts = ("kind", "apiVersion", "namespace", "name", "uid")
        return {
            "name": metadata["name"],
            "claimRef": None if ref is None else {part: ref.get(part, "") for part in parts},
            **self._common,
            "phase": status.get("phase", ""),
            "storageClassName": spec.get("storageClassName", ""),
            "capacity": _amount(spec.get("capacity")),
            "accessModes": spec.get("accessModes") or [],
            "volumeMode": spec.get("volumeMode"),
            "reclaimPolicy": spec.get("persistentVolumeReclaimPolicy", ""),
        }

    @property
    def claim(self) -> dict[str, Any]:
        metadata, spec, status = self._parts
        return {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "volumeName": spec.get("volumeName", ""),
            "storageClassName": spec.get("storageClassName"),
            **self._common,
            "phase": status.get("phase", ""),
            "accessModes": status.get("accessModes") or [],
            "capacity": _amount(status.get("capacity")),
            "currentVolumeAttributesClassName": status.get("currentVolumeAttributesClassName"),
        }

    @property
    def _common(self) -> dict[str, Any]:
        metadata, _, _ = self._parts
        return {
            "annotations": metadata.get("annotations") or {},
            "finalizers": metadata.get("finalizers") or [],
            "deleting": "deletionTimestamp" in metadata,
        }


def _amount(capacity: Json | None) -> str | None:
    if not capacity or "storage" not in capacity:
        return None
    return str(parse_quantity(str(capacity["storage"])))
