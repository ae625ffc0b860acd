"""Everybody else in a simulated run: users, administrators, thieves, and on a foreign cluster its own controllers.

They write as any client does, on the objects as they are; what cannot be done is not done. None of them breaks a
rule of Kubernetes: nobody takes a volume that is another's, or deletes a claim under a pod.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from volsched.cluster.foreign_server import ForeignApi
from volsched.cluster.local import LocalCluster
from volsched.cluster.port import ClusterError, Manifest
from volsched.kube.data_state import DIRTY
from volsched.kube.manifest import (
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    metadata,
    spec,
    status,
    uid,
)
from volsched.kube.merge_patch import merged
from volsched.kube.meta import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    ROLLBACK,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.lab.simulation.objects import NAMESPACE, OUTSIDE, local_volume

VOLUME, CLAIM, POD, NODE = "PersistentVolume", "PersistentVolumeClaim", "Pod", "Node"
Objects = LocalCluster | ForeignApi


@dataclass(slots=True)
class Others:
    """`born` keeps the manifests that a run created, so that somebody may delete and create them again."""

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
        """One deed; False where there is nothing to do it to, or it was refused."""
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
        """A volume that nobody has goes to a claim of somebody else's, unknown to us."""
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
        """A reservation that is not used yet is taken off; what was made for a claim is left to it."""
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
        """A node agent is about to mount a claim, rather one that a pod still waits with: it may hold data now."""
        bound = [it for it in self._list(CLAIM) if claim_is_bound(it) and ROLLBACK not in annotations(it)]
        waiting = {name for it in self._list(POD) if not spec(it).get("nodeName") for name in _claims(it)}
        bound = [it for it in bound if metadata(it)["name"] in waiting] or bound
        return self._patch(CLAIM, bound, pick, {"status": {"dataState": DIRTY}}, status=True)

    def _misuse(self, pick: int) -> bool:
        """Both at once: a claim that a pod waits with is in use already, and does not look bound any more."""
        return self._use(pick) and self._unmark(pick)

    def _unmark(self, pick: int) -> bool:
        """Somebody's tool rewrites the annotations of a claim, rather one in use, and it looks half bound."""
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

    def _delete_pod(self, pick: int) -> bool:
        return self._delete(POD, self._list(POD), pick)

    def _delete_claim(self, pick: int) -> bool:
        """Not under a pod: whoever deletes a claim deletes its pod first."""
        used = {name for it in self._list(POD) for name in _claims(it)}
        return self._delete(CLAIM, [it for it in self._list(CLAIM) if metadata(it)["name"] not in used], pick)

    def _create(self, kind: str, pick: int) -> bool:
        missing = sorted(key for of, key in self.born if of == kind and self.api.get(kind, key) is None)
        if not missing:
            return False
        self.api.create(kind, deepcopy(dict(self.born[kind, missing[pick % len(missing)]])))
        return True

    def _list(self, kind: str) -> list[Manifest]:
        return list(self.api.list(kind).objects)

    def _patch(
        self, kind: str, found: list[Manifest], pick: int, patch: Mapping[str, Any], *, status: bool = False
    ) -> bool:
        if not found:
            return False
        self.api.update(kind, merged(found[pick % len(found)], patch), status=status)
        return True

    def _delete(self, kind: str, found: list[Manifest], pick: int) -> bool:
        if not found:
            return False
        it = metadata(found[pick % len(found)])
        self.api.delete(kind, f"{it['namespace']}/{it['name']}" if "namespace" in it else it["name"])
        return True


def _claims(pod: Manifest) -> list[str]:
    mounts = (mount.get("persistentVolumeClaim") for mount in spec(pod).get("volumes", ()))
    return [mount["claimName"] for mount in mounts if mount is not None]


@dataclass(slots=True)
class ForeignController:
    """A foreign cluster's PV controller: it calls a volume bound, and later writes the claim as it had read it."""

    api: ForeignApi
    begun: list[Manifest] = field(default_factory=list)

    def step(self, *, begins: bool = True, finishes: bool = True) -> int:
        before = self.api.head
        if begins:
            for found in self.api.list(VOLUME).objects:
                with suppress(ClusterError):
                    self._look(found)
            for held in self.api.list(CLAIM).objects:
                with suppress(ClusterError):
                    self._let_go(held)
        while finishes and self.begun:
            with suppress(ClusterError):
                self._finish(self.begun.pop(0))
        return int(self.api.head) - int(before)

    def _look(self, found: Manifest) -> None:
        reference, phase = claim_of(found), status(found).get("phase")
        if reference is None or not reference.get("uid"):
            if phase != "Available":
                self.api.update(VOLUME, merged(found, {"status": {"phase": "Available"}}), status=True)
            return
        held = self.api.get(CLAIM, f"{reference.get('namespace')}/{reference.get('name')}")
        if held is None or uid(held) != reference["uid"]:
            if phase == "Bound":
                self.api.update(VOLUME, merged(found, {"status": {"phase": "Released"}}), status=True)
            return
        named = spec(held).get("volumeName")
        if is_being_deleted(held) or ROLLBACK in annotations(held) or claim_is_bound(held):
            return
        name = metadata(found)["name"]
        if named in (None, name):
            if phase != "Bound":
                self.api.update(VOLUME, merged(found, {"status": {"phase": "Bound"}}), status=True)
            self.begun.append(
                merged(held, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}})
            )

    def _finish(self, wanted: Manifest) -> None:
        written = self.api.update(CLAIM, wanted)
        state = {"phase": "Bound", "dataState": status(written).get("dataState", "Clean")}
        self.api.update(CLAIM, merged(written, {"status": state}), status=True)

    def _let_go(self, held: Manifest) -> None:
        """The protection of a claim that is to go; nobody of ours deletes one that a pod uses."""
        if is_being_deleted(held):
            self.api.update(CLAIM, merged(held, {"metadata": {"finalizers": None}}))


@dataclass(slots=True)
class ForeignProvisioner:
    """A provisioner of a foreign cluster: it says that it works on a claim, and later there is a volume."""

    api: ForeignApi

    def step(self, *, finishes: bool = True) -> int:
        before = self.api.head
        for held in self.api.list(CLAIM).objects:
            with suppress(ClusterError):
                self._look(held, finishes)
        return int(self.api.head) - int(before)

    def _look(self, held: Manifest, finishes: bool) -> None:
        marks = annotations(held)
        if (
            spec(held).get("volumeName")
            or SELECTED_NODE not in marks
            or ROLLBACK in marks
            or is_being_deleted(held)
        ):
            return
        if spec(held).get("storageClassName") == "local":
            return
        if STORAGE_PROVISIONER not in marks:
            self.api.update(CLAIM, merged(held, {"metadata": {"annotations": {STORAGE_PROVISIONER: OUTSIDE}}}))
            return
        name = f"pvc-{uid(held)}"
        if finishes and self.api.get(VOLUME, name) is None:
            made = local_volume(name, "9", str(marks[SELECTED_NODE]), str(spec(held)["storageClassName"]))
            made["metadata"]["annotations"] = {PROVISIONED_BY: OUTSIDE, BOUND_BY_CONTROLLER: "yes"}
            names = {part: metadata(held)[part] for part in ("namespace", "name", "uid")}
            made["spec"]["claimRef"] = {"kind": CLAIM, "apiVersion": "v1", **names}
            self.api.create(VOLUME, made)
