"""The other actors of a simulated run, on either kind of cluster, and the objects that they create."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from volsched.cluster.foreign_api import ForeignApi
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import ClusterError, Manifest, whole
from volsched.kube.manifest import (
    DIRTY,
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    metadata,
    spec,
    status,
    uid,
)
from volsched.kube.meta import (
    BIND_COMPLETED,
    BIND_TIMEOUT_SECONDS,
    BOUND_BY_CONTROLLER,
    HOSTNAME,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    ZONE,
)
from volsched.kube.patches import merged
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab import manifests
from volsched.lab.manifests import NAMESPACE
from volsched.lab.simulation.schedule import ScheduleChoice
from volsched.provisioning.simulated import SIMULATED

# The objects of simulated clusters: small enough to read in a schedule, rich enough for contention.

NewManifest = dict[str, Any]
OUTSIDE = "disks.example.com"
"""A provisioner in its own process."""
DISKS = "attached.example.com"
"""A driver with a limit: its volumes are created by hand, and attached to nodes."""
PROVISIONERS = {"local": NO_PROVISIONER, "inside": SIMULATED, "outside": OUTSIDE}
"""Class → its provisioner."""


def new_objects(choice: ScheduleChoice) -> list[tuple[str, NewManifest]]:
    """`create NOUN name=… …` as kinds and manifests; omitted fields have plain values."""
    given = choice.options
    name = given.get("name", choice.who)
    match choice.who:
        case "class":
            return [("StorageClass", _class(name, given.get("seconds"), given.get("room")))]
        case "node":
            # With its drivers: a provisioner would refuse a node without them forever.
            drivers = _csi_node(name, given.get("limit"))
            return [("Node", _node(name, given.get("zone", "z1"))), ("CSINode", drivers)]
        case "misfit":
            # A separate place for the external provisioner: otherwise it would neither create anything nor release
            # the node.
            return [("Node", _node(name, "")), ("CSINode", _csi_node(name, None, key=HOSTNAME))]
        case "volume":
            made_here = manifests.local_volume(name, f"{given.get('size', '5')}Gi", given.get("node", "n1"))
            return [("PersistentVolume", _attachable(made_here) if "disk" in given else made_here)]
        case "claim":
            size, class_name = f"{given.get('size', '1')}Gi", given.get("class", "local")
            return [("PersistentVolumeClaim", manifests.claim(name, size, class_name))]
        case "pod":
            return [("Pod", pod(name, given.get("claims", ""), given.get("seconds", "30")))]
    return []


def _node(name: str, zone: str) -> NewManifest:
    labels = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _csi_node(name: str, limit: str | None, *, key: str = ZONE) -> NewManifest:
    drivers: list[NewManifest] = [{"name": OUTSIDE, "nodeID": name, "topologyKeys": [key]}]
    if limit is not None:
        drivers.append({"name": DISKS, "nodeID": name, "topologyKeys": [], "allocatable": {"count": int(limit)}})
    spec = {"drivers": drivers}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def _attachable(volume: NewManifest) -> NewManifest:
    """The same on a disk that a driver attaches."""
    spec = {key: value for key, value in volume["spec"].items() if key != "local"}
    disk = {"driver": DISKS, "volumeHandle": volume["metadata"]["name"]}
    return {**volume, "spec": {**spec, "csi": disk}}


def _class(name: str, seconds: str | None, room: str | None) -> NewManifest:
    parameters = {} if seconds is None else {"latencySeconds": seconds}
    parameters |= {} if room is None else {"capacityPerDomain": f"{room}Gi"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": PROVISIONERS.get(name, OUTSIDE),
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": parameters,
    }


def pod(name: str, claims: str, seconds: str) -> NewManifest:
    """`claims` are comma-separated names; `seconds` is how long it waits for its volumes."""
    mounts = {f"v{place}": claim for place, claim in enumerate(filter(None, claims.split(",")))}
    return manifests.pod(name, mounts, annotations={BIND_TIMEOUT_SECONDS: seconds})


# They write as any client does, on the current objects; impossible actions are skipped. None of them breaks a
# rule of Kubernetes: none takes a volume of another claim, or deletes a claim that a pod uses.

VOLUME, CLAIM, POD, NODE = "PersistentVolume", "PersistentVolumeClaim", "Pod", "Node"
Objects = LocalCluster | ForeignApi


@dataclass(slots=True)
class Others:
    """`born` keeps the manifests that a run created, so that they can be deleted and created again."""

    api: Objects
    born: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def create_all(self, objects: Iterable[tuple[str, Manifest]]) -> None:
        for kind, manifest in objects:
            self.create(kind, manifest)

    def create(self, kind: str, manifest: Manifest) -> None:
        key = f"{NAMESPACE}/{manifest['metadata']['name']}" if "namespace" in manifest["metadata"] else ""
        self.born[kind, key or manifest["metadata"]["name"]] = manifest
        self.api.create(kind, deepcopy(dict(manifest)))

    def do(self, deed: str, pick: int) -> bool:
        """Carry out one action; False if it has no target, or was refused."""
        with suppress(ClusterError):
            return self.deeds[deed](pick)
        return False

    @property
    def deeds(self) -> Mapping[str, Callable[[int], bool]]:
        return {
            "take": self._take,
            "give": self._give,
            "free": self._free,
            "touch": self._touch,
            "use": self._use,
            "unmark": self._unmark,
            "misuse": self._misuse,
            "cordon": self._cordon,
            "delete-pod": self._delete_pod,
            "create-pod": lambda pick: self._create(POD, pick),
            "delete-claim": self._delete_claim,
            "create-claim": lambda pick: self._create(CLAIM, pick),
        }

    def _take(self, pick: int) -> bool:
        """A free volume goes to a foreign claim, unknown to us."""
        return self._claimed(pick, {"namespace": "elsewhere", "name": "theirs", "uid": "uid-theirs"})

    def _give(self, pick: int) -> bool:
        """An administrator reserves a volume for a claim that has none."""
        waiting = [it for it in self._list(CLAIM) if not spec(it).get("volumeName") and not is_being_deleted(it)]
        if not waiting:
            return False
        chosen = waiting[pick % len(waiting)]
        names = {"namespace": NAMESPACE, "name": metadata(chosen)["name"], "uid": uid(chosen)}
        return self._claimed(pick, names)

    def _claimed(self, pick: int, names: Mapping[str, str]) -> bool:
        free = [it for it in self._list(VOLUME) if claim_of(it) is None]
        reference = {"kind": CLAIM, "apiVersion": "v1", **names}
        return self._patch(VOLUME, free, pick, {"spec": {"claimRef": reference}})

    def _free(self, pick: int) -> bool:
        """An unused reservation is removed; a volume that was provisioned for a claim stays its own."""
        named = {spec(it).get("volumeName") for it in self._list(CLAIM)}
        loose = [
            it
            for it in self._list(VOLUME)
            if claim_of(it) is not None
            and status(it).get("phase") in ("Pending", "Available", None)
            and metadata(it)["name"] not in named
            and PROVISIONED_BY not in annotations(it)
        ]
        return self._patch(VOLUME, loose, pick, {"spec": {"claimRef": None}})

    def _touch(self, pick: int) -> bool:
        return self._patch(VOLUME, self._list(VOLUME), pick, {"metadata": {"labels": {"touched": str(pick)}}})

    def _use(self, pick: int) -> bool:
        """A node agent is about to mount a claim, preferably one of a waiting pod: it may hold data now."""
        bound = [it for it in self._list(CLAIM) if claim_is_bound(it) and ROLLBACK not in annotations(it)]
        waiting = {name for it in self._list(POD) if not spec(it).get("nodeName") for name in _claims(it)}
        bound = [it for it in bound if metadata(it)["name"] in waiting] or bound
        return self._patch(CLAIM, bound, pick, {"status": {"dataState": DIRTY}}, status=True)

    def _misuse(self, pick: int) -> bool:
        """Both at once: a claim of a waiting pod is in use already, and no longer looks bound."""
        return self._use(pick) and self._unmark(pick)

    def _unmark(self, pick: int) -> bool:
        """A user's tool rewrites the annotations of a claim, preferably one in use, and it looks half bound."""
        bound = [it for it in self._list(CLAIM) if claim_is_bound(it)]
        bound = [it for it in bound if status(it).get("dataState") == DIRTY] or bound
        return self._patch(CLAIM, bound, pick, {"metadata": {"annotations": {BIND_COMPLETED: None}}})

    def _cordon(self, pick: int) -> bool:
        nodes = self._list(NODE)
        found = nodes[pick % len(nodes)] if nodes else {}
        off = not spec(found).get("unschedulable")
        return self._patch(NODE, nodes, pick, {"spec": {"unschedulable": True if off else None}})

    def uncordon(self) -> None:
        for it in self._list(NODE):
            if spec(it).get("unschedulable"):
                self._patch(NODE, [it], 0, {"spec": {"unschedulable": None}})

    def give_up_stuck_pods(self) -> None:
        """Users delete pods with a claim stored on a misfit, where no volume can be created for another claim.

        What an external provisioner created, or what may hold data, stays with its claim (docs/binding.md): only a
        person can decide.
        """
        misfits = {metadata(it)["name"] for it in self._list(NODE) if ZONE not in metadata(it).get("labels", {})}
        stored = {metadata(it)["name"] for it in self._list(VOLUME) if misfits and _hosts(it) & misfits}
        claims = {metadata(it)["name"]: spec(it) for it in self._list(CLAIM)}
        for pod in self._list(POD):
            used = [claims[name] for name in _claims(pod) if name in claims]
            is_held = any(it.get("volumeName") in stored for it in used)
            is_refused = any(it.get("storageClassName") == "inside" and not it.get("volumeName") for it in used)
            if is_held and is_refused and not spec(pod).get("nodeName"):
                self._delete(POD, [pod], 0)

    def _delete_pod(self, pick: int) -> bool:
        return self._delete(POD, self._list(POD), pick)

    def _delete_claim(self, pick: int) -> bool:
        """Not while a pod uses it: a user deletes the pod first."""
        used = {name for it in self._list(POD) for name in _claims(it)}
        return self._delete(CLAIM, [it for it in self._list(CLAIM) if metadata(it)["name"] not in used], pick)

    def _create(self, kind: str, pick: int) -> bool:
        missing = sorted(key for of, key in self.born if of == kind and self.api.get(kind, key) is None)
        if not missing:
            return False
        self.api.create(kind, deepcopy(dict(self.born[kind, missing[pick % len(missing)]])))
        return True

    def _list(self, kind: str) -> list[Manifest]:
        return list(whole(self.api.list(kind)).objects)

    def _patch(
        self, kind: str, candidates: list[Manifest], pick: int, patch: Mapping[str, Any], *, status: bool = False
    ) -> bool:
        if not candidates:
            return False
        self.api.update(kind, merged(candidates[pick % len(candidates)], patch), status=status)
        return True

    def _delete(self, kind: str, candidates: list[Manifest], pick: int) -> bool:
        if not candidates:
            return False
        it = metadata(candidates[pick % len(candidates)])
        self.api.delete(kind, f"{it['namespace']}/{it['name']}" if "namespace" in it else it["name"])
        return True


def _hosts(volume: Manifest) -> set[str]:
    """The only nodes that reach the volume, if its terms name them."""
    terms = spec(volume).get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    named = [it["values"] for term in terms for it in term.get("matchExpressions", ()) if it["key"] == HOSTNAME]
    return {host for hosts in named for host in hosts}


def _claims(pod: Manifest) -> list[str]:
    mounts = (mount.get("persistentVolumeClaim") for mount in spec(pod).get("volumes", ()))
    return [mount["claimName"] for mount in mounts if mount is not None]


@dataclass(slots=True)
class ForeignController:
    """A foreign cluster's PV controller: it sets a volume Bound, and later writes the claim from an old read."""

    api: ForeignApi
    begun: list[Manifest] = field(default_factory=list)

    def step(self, *, begins: bool = True, finishes: bool = True) -> int:
        before = self.api.head
        if begins:
            for found in whole(self.api.list(VOLUME)).objects:
                with suppress(ClusterError):
                    self._reconcile(found)
            for held in whole(self.api.list(CLAIM)).objects:
                with suppress(ClusterError):
                    self._let_go(held)
        while finishes and self.begun:
            with suppress(ClusterError):
                self._finish(self.begun.pop(0))
        return int(self.api.head) - int(before)

    def _reconcile(self, volume: Manifest) -> None:
        reference, phase = claim_of(volume), status(volume).get("phase")
        if reference is None or not reference.get("uid"):
            if phase != "Available":
                self.api.update(VOLUME, merged(volume, {"status": {"phase": "Available"}}), status=True)
            return
        claim = self.api.get(CLAIM, f"{reference.get('namespace')}/{reference.get('name')}")
        if claim is None or uid(claim) != reference["uid"]:
            if phase == "Bound":
                self.api.update(VOLUME, merged(volume, {"status": {"phase": "Released"}}), status=True)
            return
        named = spec(claim).get("volumeName")
        if is_being_deleted(claim) or ROLLBACK in annotations(claim) or claim_is_bound(claim):
            return
        name = metadata(volume)["name"]
        if named in (None, name):
            if phase != "Bound":
                self.api.update(VOLUME, merged(volume, {"status": {"phase": "Bound"}}), status=True)
            self.begun.append(
                merged(claim, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}})
            )

    def _finish(self, wanted: Manifest) -> None:
        written = self.api.update(CLAIM, wanted)
        state = {"phase": "Bound", "dataState": status(written).get("dataState", "Clean")}
        self.api.update(CLAIM, merged(written, {"status": state}), status=True)

    def _let_go(self, claim: Manifest) -> None:
        """Removes the finalizers of a claim that is being deleted; no actor deletes one that a pod uses."""
        if is_being_deleted(claim):
            self.api.update(CLAIM, merged(claim, {"metadata": {"finalizers": None}}))


@dataclass(slots=True)
class ForeignProvisioner:
    """A provisioner of a foreign cluster: it announces work on a claim, and later there is a volume."""

    api: ForeignApi

    def step(self, *, finishes: bool = True) -> int:
        before = self.api.head
        for claim in whole(self.api.list(CLAIM)).objects:
            with suppress(ClusterError):
                self._reconcile(claim, finishes)
        return int(self.api.head) - int(before)

    def _reconcile(self, claim: Manifest, finishes: bool) -> None:
        marks = annotations(claim)
        if (
            spec(claim).get("volumeName")
            or SELECTED_NODE not in marks
            or ROLLBACK in marks
            or is_being_deleted(claim)
        ):
            return
        if spec(claim).get("storageClassName") == "local":
            return
        if STORAGE_PROVISIONER not in marks:
            self.api.update(CLAIM, merged(claim, {"metadata": {"annotations": {STORAGE_PROVISIONER: OUTSIDE}}}))
            return
        name = f"pvc-{uid(claim)}"
        if finishes and self.api.get(VOLUME, name) is None:
            volume = manifests.local_volume(
                name, "9Gi", str(marks[SELECTED_NODE]), str(spec(claim)["storageClassName"])
            )
            volume["metadata"]["annotations"] = {PROVISIONED_BY: OUTSIDE, BOUND_BY_CONTROLLER: "yes"}
            names = {part: metadata(claim)[part] for part in ("namespace", "name", "uid")}
            volume["spec"]["claimRef"] = {"kind": CLAIM, "apiVersion": "v1", **names}
            self.api.create(VOLUME, volume)
