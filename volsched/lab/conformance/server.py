"""The surroundings of the PV controller in a vector: an API server in memory and a volume plugin that obeys.

`lenient` stores whatever it is sent, `strict` treats spec, status and finalizers much as a real server does. Both
fail where the vector says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.storage import FILESYSTEM
from volsched.log.commands import ConflictError
from volsched.objects.rules.refusals import AlreadyExistsError, NotFoundError, ObjectError
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
        """As given; every object starts at the same version."""
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
    """Answers each kind of call from a list; the last entry repeats, no list is success for ever."""

    behaviour: Json
    calls: list[tuple[str, str, str]] = field(default_factory=list)

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
