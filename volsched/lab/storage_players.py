"""Kubernetes' own storage components, played over HTTP write by write: the PV controller and a provisioner.

The controller's four writes are separate steps, each made with the version in its cache, and the cache is as stale
as its owner leaves it (`refresh`). So a test can write between any two of them, or let the controller act on a
stale cache. A drill that does not need this calls `sync` repeatedly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONER
from volsched.kube.patches import merged
from volsched.kube.storage import NO_PROVISIONER

Manifest = dict[str, Any]


class RestClient(Protocol):
    """A client of one server, such as httpx has; an answer has `status_code` and `json()`."""

    def get(self, url: str) -> Any: ...
    def post(self, url: str, *, json: Any) -> Any: ...
    def put(self, url: str, *, json: Any) -> Any: ...


def volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{name}"


def claim_path(name: str) -> str:
    return f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"


@dataclass
class PvController:
    http: RestClient
    volumes: dict[str, Manifest] = field(default_factory=dict)
    claims: dict[str, Manifest] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the present objects into the cache."""
        for path, cache in (
            ("/api/v1/persistentvolumes", self.volumes),
            ("/api/v1/namespaces/default/persistentvolumeclaims", self.claims),
        ):
            cache.clear()
            cache.update({it["metadata"]["name"]: it for it in self.http.get(path).json()["items"]})

    def sync(self, provisioners: Mapping[str, str]) -> int:
        """Do all due work; returns the number of changes. `provisioners`: by the name of a class."""
        self.offer()
        done = self.bind()
        for name, claim in self.claims.items():
            marks = claim["metadata"].get("annotations") or {}
            wants = (
                SELECTED_NODE in marks and STORAGE_PROVISIONER not in marks and not claim["spec"].get("volumeName")
            )
            named = provisioners.get(claim["spec"].get("storageClassName", ""), NO_PROVISIONER)
            if wants and named != NO_PROVISIONER:
                done += self._order(name, named) == 200
        return done

    def offer(self) -> None:
        """New volumes, and volumes that lost their claim, become Available."""
        self.refresh()
        for name, manifest in self.volumes.items():
            if not manifest["spec"].get("claimRef") and manifest.get("status", {}).get("phase") != "Available":
                self._put(f"{volume_path(name)}/status", merged(manifest, {"status": {"phase": "Available"}}))

    def set_claim(self, name: str, claim: str) -> int:
        """The first write, skipped where claimRef has the claim's uid already, as after a prebind of ours.

        Returns the status code, as the next three do.
        """
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
        uid = self.claims[claim]["metadata"]["uid"]
        return self._put(
            volume_path(name), merged(self.volumes[name], {"spec": {"claimRef": {**reference, "uid": uid}}})
        )

    def set_phase(self, name: str) -> int:
        """The second write."""
        return self._put(f"{volume_path(name)}/status", merged(self.volumes[name], {"status": {"phase": "Bound"}}))

    def write_claim(self, name: str, volume: str) -> int:
        marks = {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}}
        return self._put(
            claim_path(name), merged(self.claims[name], {"metadata": marks, "spec": {"volumeName": volume}})
        )

    def write_claim_status(self, name: str) -> int:
        claim = self.http.get(claim_path(name)).json()
        return self._put(f"{claim_path(name)}/status", merged(claim, {"status": {"phase": "Bound"}}))

    def bind(self) -> int:
        """Sync every volume that is given to an unbound claim; stops a bind where a write is refused."""
        self.refresh()
        bound = 0
        for volume, manifest in list(self.volumes.items()):
            reference = manifest["spec"].get("claimRef") or {}
            claim = self.claims.get(reference.get("name", ""))
            if (
                claim is None
                or claim["metadata"]["uid"] != reference.get("uid")
                or claim["spec"].get("volumeName")
            ):
                continue
            if manifest.get("status", {}).get("phase") != "Bound" and self.set_phase(volume) != 200:
                continue
            if self.write_claim(reference["name"], volume) == 200:
                self.write_claim_status(reference["name"])
                bound += 1
        return bound

    def order(self, name: str) -> int:
        """Name the provisioner of a claim whose node is selected."""
        self.refresh()
        return self._order(name, "disk.example.com")

    def _order(self, name: str, provisioner: str) -> int:
        marks = {"metadata": {"annotations": {STORAGE_PROVISIONER: provisioner}}}
        return self._put(claim_path(name), merged(self.claims[name], marks))

    def _put(self, path: str, manifest: Manifest) -> int:
        return int(self.http.put(path, json=manifest).status_code)


@dataclass
class ProvisionerPlayer:
    http: RestClient
    in_progress: dict[str, str] = field(default_factory=dict)
    """Claim → the node for which its volume is being created, even if another node was selected since."""

    def begin(self, name: str) -> None:
        """Begin to create a volume, which takes until `provision`."""
        self.in_progress[name] = self.http.get(claim_path(name)).json()["metadata"]["annotations"][SELECTED_NODE]

    def sync(self, claims: Mapping[str, Manifest], volumes: Mapping[str, Manifest]) -> int:
        """Create a volume for every claim that names a provisioner and has none. Returns how many."""
        waiting = [
            name
            for name, it in claims.items()
            if STORAGE_PROVISIONER in (it["metadata"].get("annotations") or {})
            and SELECTED_NODE in it["metadata"]["annotations"]
            and not it["spec"].get("volumeName")
            and f"pvc-{it['metadata']['uid']}" not in volumes
        ]
        for name in waiting:
            self.provision(name)
        return len(waiting)

    def provision(self, name: str) -> str:
        """Finish the volume, on the node with which it was begun."""
        if name not in self.in_progress:
            self.begin(name)
        claim, node = self.http.get(claim_path(name)).json(), self.in_progress.pop(name)
        volume = f"pvc-{claim['metadata']['uid']}"
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "storageClassName": claim["spec"]["storageClassName"],
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {**reference, "uid": claim["metadata"]["uid"]},
                "csi": {"driver": "disk.example.com", "volumeHandle": volume},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }
        answer = self.http.post("/api/v1/persistentvolumes", json=body)
        assert answer.status_code == 201, answer.text
        return volume

    def give_back(self, name: str) -> None:
        """Reject the selected node: it is removed from the claim."""
        claim = self.http.get(claim_path(name)).json()
        body = merged(claim, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        assert self.http.put(claim_path(name), json=body).status_code == 200
