"""The PV controller on a vector's cluster: an API server in memory and a scripted plugin."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from volsched.kube.quantity import parse_quantity
from volsched.kube.storage import FILESYSTEM
from volsched.log.commands import ConflictError, RejectedError
from volsched.objects.rules.object_events import AlreadyExistsError, NotFoundError, ObjectError
from volsched.pv_controller.rules import (
    KINDS_SEEN,
    PARITY,
    Caches,
    ControllerRules,
    Notice,
    ParsedObject,
    Request,
    StartOperation,
    Steps,
    SyncError,
    VolumePlugin,
    drive,
    parsed_claim,
    parsed_volume,
    sync_claim,
    sync_volume,
)
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    Create,
    Delete,
    DeleteAsset,
    LiveGet,
    PluginError,
    Provision,
    Recycle,
    Update,
    VolumeInUseError,
)

# The surroundings of the PV controller in a vector: an API server in memory and a scripted volume plugin.
#
# `lenient` stores whatever it receives, `strict` treats spec, status and finalizers much as a real server does.
# Both fail where the vector says so.

Json = Mapping[str, Any]
NOW = "2026-01-01T00:00:00Z"
IN_USE = "in-use"
_RESOURCES = {CLAIM: "persistentvolumeclaims", VOLUME: "persistentvolumes", "Node": "nodes"}


@dataclass(slots=True)
class VectorFault:
    """One call that fails, after `skip` calls of its kind that do not."""

    verb: str
    resource: str
    subresource: str
    skip: int
    error: str

    def concerns(self, verb: str, kind: str, part: str) -> bool:
        return (self.verb, self.resource) == (verb, _RESOURCES.get(kind)) and self.subresource in ("*", part)


@dataclass(slots=True)
class VectorServer:
    strict: bool
    faults: list[VectorFault] = field(default_factory=list)
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    changes: int = 0
    _version: int = 1

    def load(self, kind: str, manifest: Json) -> None:
        """Store the object as given; every object starts at the same version."""
        metadata = {**manifest["metadata"], "resourceVersion": "1"}
        self.objects[kind, _key(manifest)] = {"status": {}, **manifest, "metadata": metadata}

    def of_kind(self, kind: str) -> dict[str, Json]:
        return {key: self.objects[kind, key] for held, key in sorted(self.objects) if held == kind}

    def get(self, request: LiveGet) -> Json | None:
        self._may_fail("get", request.kind, "")
        return self.objects.get((request.kind, request.key))

    def create(self, request: Create) -> Json:
        self._may_fail("create", request.kind, "")
        place = (request.kind, _key(request.manifest))
        if place in self.objects:
            raise AlreadyExistsError("already exists")
        manifest = dict(request.manifest)
        if self.strict:
            manifest["status"] = {"phase": "Pending"}
        return self._put(place, manifest)

    def update(self, request: Update) -> Json:
        self._may_fail("update", request.kind, "status" if request.status else "")
        place = (request.kind, _key(request.manifest))
        stored = self.objects.get(place)
        if stored is None:
            raise NotFoundError("not found")
        if stored["metadata"]["resourceVersion"] != request.manifest["metadata"].get("resourceVersion"):
            raise ConflictError("VersionError")
        new = self._strictly(stored, request) if self.strict else request.manifest
        if new == stored:
            return stored
        metadata = new["metadata"]
        if self.strict and "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.objects[place]
            self.changes += 1
            return new
        return self._put(place, new)

    def delete(self, request: Delete) -> None:
        self._may_fail("delete", request.kind, "")
        place = (request.kind, request.key)
        stored = self.objects.get(place)
        if stored is None:
            raise NotFoundError("not found")
        metadata = stored["metadata"]
        if not (self.strict and metadata.get("finalizers")):
            del self.objects[place]
            self.changes += 1
        elif "deletionTimestamp" not in metadata:
            self._put(place, {**stored, "metadata": {**metadata, "deletionTimestamp": NOW}})

    def _strictly(self, stored: Json, request: Update) -> Json:
        if request.status:
            return {**stored, "status": request.manifest.get("status", {})}
        held = stored["metadata"]
        added = set(request.manifest["metadata"].get("finalizers") or ()) - set(held.get("finalizers") or ())
        if "deletionTimestamp" in held and added:
            raise ObjectError("invalid")
        return {**request.manifest, "status": stored.get("status", {})}

    def _put(self, place: tuple[str, str], manifest: Json) -> Json:
        self._version += 1
        self.changes += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self._version)}
        self.objects[place] = {**manifest, "metadata": metadata}
        return self.objects[place]

    def _may_fail(self, verb: str, kind: str, part: str) -> None:
        for fault in self.faults:
            if not fault.concerns(verb, kind, part):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            self.faults.remove(fault)
            if fault.error == "conflict":
                raise ConflictError("VersionError")
            raise ObjectError(fault.error)


@dataclass(slots=True)
class ObedientPlugin:
    """Answers each kind of call from a list; the last entry repeats, no list means success forever."""

    behaviour: Json
    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def answer(self, request: Provision | DeleteAsset | Recycle) -> Any:
        match request:
            case Provision():
                return self.provision(request)
            case DeleteAsset():
                return self.delete(request)
            case Recycle():
                return self.recycle(request)

    def provision(self, request: Provision) -> Json:
        self._call("provision", request.volume_name)
        claim = request.claim["spec"]
        spec = {
            "capacity": {"storage": claim["resources"]["requests"]["storage"]},
            "accessModes": claim["accessModes"],
            "persistentVolumeReclaimPolicy": request.storage_class["reclaimPolicy"],
            "volumeMode": claim.get("volumeMode", FILESYSTEM),
            "hostPath": {"path": f"/{request.volume_name}"},
        }
        return {"spec": spec}

    def delete(self, request: DeleteAsset) -> None:
        self._call("delete", request.volume["metadata"]["name"])

    def recycle(self, request: Recycle) -> None:
        self._call("recycle", request.volume["metadata"]["name"])

    def _call(self, call: str, volume: str) -> None:
        results = self.behaviour.get(call) or [""]
        made = sum(1 for other, _, _ in self.calls if other == call)
        result = results[min(made, len(results) - 1)]
        self.calls.append((call, volume, result))
        if result == IN_USE and call == "delete":
            raise VolumeInUseError("volume is in use")
        if result:
            raise PluginError(result)


def faults_of(entries: Iterable[Json]) -> list[VectorFault]:
    return [
        VectorFault(
            entry["verb"],
            entry["resource"],
            entry.get("subresource", ""),
            entry.get("skip", 0),
            entry["error"],
        )
        for entry in entries
    ]


def _key(manifest: Json) -> str:
    metadata = manifest["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


# Compared are the objects at the end and, as sets, the events and the plugin calls. The order and the number of
# writes are not compared.

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
    """A server, a plugin, and a controller whose caches are recreated before each sync."""

    server: VectorServer
    plugin: ObedientPlugin
    rules: ControllerRules
    unseen: frozenset[str] = frozenset()
    """Objects that the controller's caches lack, as `Kind key`."""
    notices: set[tuple[str, str, str]] = field(default_factory=set)
    _caches: Caches = field(default_factory=Caches)
    _started: list[Steps[None]] = field(default_factory=list)

    def sync(self, kind: str, key: str) -> None:
        """One sync of an object, and the operations it started; a failed sync would be retried later."""
        manifest = self.server.objects[kind, key]
        self._caches = Caches(
            (held, seen)
            for (held, name), seen in self.server.objects.items()
            if held in KINDS_SEEN and f"{held} {name}" not in self.unseen
        )
        if kind == CLAIM:
            steps = sync_claim(self._caches, parsed_claim(manifest), rules=self.rules)
        else:
            steps = sync_volume(self._caches, parsed_volume(manifest), rules=self.rules)
        self._run(steps)
        while self._started:
            self._run(self._started.pop(0))

    def settle(self, first: str, second: str) -> bool:
        """Rounds over all objects until one changes nothing; False if that never happens."""
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
        # A failure would be logged and retried; the vectors do not compare it.
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
            case Provision() | DeleteAsset() | Recycle():
                return self.plugin.answer(request)
            case _:
                # Time does not pass here, and every object is synced again anyway.
                return None

    def _remembered(self, kind: str, manifest: Json) -> ParsedObject[Any]:
        self._caches.store(kind, manifest)
        return parsed_claim(manifest) if kind == CLAIM else parsed_volume(manifest)


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
    """Our answer to a vector, in the shape of `controller_expectation`."""
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
            key: _NormalizedManifest(manifest).volume for key, manifest in cluster.server.of_kind(VOLUME).items()
        },
        "persistentVolumeClaims": {
            key: _NormalizedManifest(manifest).claim for key, manifest in cluster.server.of_kind(CLAIM).items()
        },
        "events": sorted(map(list, cluster.notices)),
        "pluginCalls": sorted(map(list, set(cluster.plugin.calls))),
    }
    return answered if converged is None else {**answered, "converged": converged}


def controller_expectation(expected: Json) -> dict[str, Any]:
    """The part of a vector's `expected` that must be equal: objects by name, sets as sorted lists."""
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
class _NormalizedManifest:
    """A manifest in the vectors' own format, in which absent fields have fixed values."""

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
