"""The other actors on the foreign cluster of a drill: users, administrators, controllers, a rival scheduler.

All of them send HTTP to the strict server directly, not through the proxy that the drill cuts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import httpx2

from volsched.kube.manifest import metadata, spec, status
from volsched.kube.meta import BINDING_STAMP
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab import manifests
from volsched.lab.drills.cluster_oracle import ClusterHistory, ClusterSnapshot, claims_of
from volsched.lab.manifests import Manifest
from volsched.lab.storage_players import ProvisionerPlayer, PvController, claim_path, volume_path

LOCAL, NETWORK, SCARCE = "local", "network", "scarce"
"""Classes: of existing volumes, of a provisioner, and one with two volumes on each node."""
PROVISIONERS = {LOCAL: NO_PROVISIONER, SCARCE: NO_PROVISIONER, NETWORK: "disk.example.com"}
CORE = "/api/v1"
HOME = f"{CORE}/namespaces/default"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
US = "volsched"
"""The beginning of our User-Agent."""
SMALL, LARGE = "2Gi", "20Gi"
"""The two volumes of a node in class scarce; each fits one of the two claims of a pod."""


def pod_object(name: str, claims: list[str]) -> Manifest:
    return manifests.pod(name, dict(zip(claims, claims, strict=True)), scheduler="volsched")


_PATHS = {
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "Node": f"{CORE}/nodes",
    "PersistentVolume": f"{CORE}/persistentvolumes",
    "PersistentVolumeClaim": f"{HOME}/persistentvolumeclaims",
    "Pod": f"{HOME}/pods",
}


@dataclass(slots=True)
class ForeignCluster:
    http: httpx2.Client
    nodes: int
    controls: bool = True
    """Whether its PV controller and provisioner are running."""
    history: ClusterHistory = field(default_factory=ClusterHistory)
    _controller: PvController = field(init=False)
    _provisioner: ProvisionerPlayer = field(init=False)

    def __post_init__(self) -> None:
        self._controller, self._provisioner = PvController(self.http), ProvisionerPlayer(self.http)

    @property
    def node_names(self) -> list[str]:
        return [f"node-{number}" for number in range(self.nodes)]

    # --- actions of others ------------------------------------------------------------------------------

    def begin(self) -> None:
        self.create(*starmap(manifests.storage_class, PROVISIONERS.items()), *map(manifests.node, self.node_names))

    def create(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            answer = self.http.post(_PATHS[manifest["kind"]], json=manifest)
            if answer.status_code != 201:
                raise AssertionError(f"{manifest['metadata']['name']}: {answer.status_code} {answer.text}")

    def bring_pods(self, batch: str, claims: list[int]) -> list[str]:
        """Pods with so many claims each, and local volumes for all of them on every node; of several claims the
        last is provisioned."""
        local = [max(count - (count > 1), 1) for count in claims]
        self.create(
            *(
                manifests.local_volume(f"{batch}-{number}-{it}", SMALL, it)
                for number in range(sum(local))
                for it in self.node_names
            )
        )
        self._controller.offer()
        names = []
        for number, count in enumerate(claims):
            names.append(f"{batch}-pod-{number}")
            wanted = [f"{names[-1]}-{it}" for it in range(count)]
            classes = [LOCAL] * local[number] + [NETWORK] * (count - local[number])
            self.create(*(manifests.claim(it, "1Gi", of) for it, of in zip(wanted, classes, strict=True)))
            self.create(pod_object(names[-1], wanted))
        return names

    def bring_scarce_volumes(self, batch: str, node: str) -> None:
        """Create a volume for each claim of a scarce pod, on this node alone."""
        for name, size in (("small", SMALL), ("large", LARGE)):
            self.create(manifests.local_volume(f"{batch}-{name}-{node}", size, node, SCARCE))
        self._controller.offer()

    def bring_scarce_pod(self, batch: str, node: str) -> str:
        """A pod with two claims, and one volume for each of them."""
        self.bring_scarce_volumes(batch, node)
        wanted = [f"{batch}-small", f"{batch}-large"]
        self.create(manifests.claim(wanted[0], "1Gi", SCARCE), manifests.claim(wanted[1], "10Gi", SCARCE))
        self.create(pod_object(f"{batch}-pod", wanted))
        return f"{batch}-pod"

    def delete_pod(self, name: str) -> None:
        self.http.delete(f"{HOME}/pods/{name}?gracePeriodSeconds=0").raise_for_status()

    def delete_claim(self, name: str) -> None:
        self.http.delete(claim_path(name)).raise_for_status()

    def give_away(self, volume: str, rival: str) -> bool:
        """Another scheduler prebinds a volume to a claim of its own; False where another writer was faster."""
        self.create(manifests.claim(rival, "1Gi", spec(self.volume(volume))["storageClassName"]))
        return self._prebind(volume, rival)

    def compete(self, batch: str, count: int) -> int:
        """Another scheduler takes volumes as ours does, the smallest by name first. Returns how many it got."""
        free = [name for name, it in self.snapshot().volumes.items() if _is_free(it, LOCAL)]
        wanted = [f"{batch}-rival-{number}" for number in range(count)]
        self.create(*(manifests.claim(it, "1Gi") for it in wanted))
        return sum(self._prebind(volume, it) for volume, it in zip(sorted(free), wanted, strict=False))

    def free_volume(self, name: str) -> None:
        """An administrator takes a volume away from a claim that is gone."""
        patch = {"spec": {"claimRef": None}, "metadata": {"annotations": {BINDING_STAMP: None}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        self.http.patch(volume_path(name), json=patch, headers=headers).raise_for_status()
        self._controller.offer()

    def misbehave(self, fault: str, times: int) -> None:
        order = {"fault": fault, "times": times, "client": US}
        self.http.post("/strict/faults", json=order).raise_for_status()

    def _prebind(self, volume: str, rival: str) -> bool:
        """Prebind with the version that was read, as kube-scheduler does."""
        stored = self.volume(volume)
        if spec(stored).get("claimRef"):
            return False
        uid = metadata(self.http.get(claim_path(rival)).json())["uid"]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": rival}
        body = {**stored, "spec": {**stored["spec"], "claimRef": {**reference, "uid": uid}}}
        return bool(self.http.put(volume_path(volume), json=body).status_code == 200)

    # --- the state of the cluster -----------------------------------------------------------------------

    def step(self) -> ClusterSnapshot:
        """One step of its controllers, if they run; returns a snapshot, which is added to the history."""
        if self.controls:
            self._controller.sync(PROVISIONERS)
            self._provisioner.sync(self._controller.claims, self._controller.volumes)
        found = self.snapshot()
        self.history.see(found)
        return found

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot(
            *(self._list(kind) for kind in ("Pod", "PersistentVolumeClaim", "PersistentVolume"))
        )

    def events(self) -> list[Manifest]:
        return list(self.http.get(EVENTS).raise_for_status().json()["items"])

    def volume(self, name: str) -> Manifest:
        return dict(self.http.get(volume_path(name)).raise_for_status().json())

    def _list(self, kind: str) -> dict[str, Manifest]:
        items = self.http.get(_PATHS[kind]).raise_for_status().json()["items"]
        return {metadata(it)["name"]: it for it in items}


def _is_free(volume: Mapping[str, Any], class_name: str) -> bool:
    free = not spec(volume).get("claimRef") and status(volume).get("phase") == "Available"
    return free and spec(volume)["storageClassName"] == class_name


def written_for(look: ClusterSnapshot, pod: str) -> dict[str, str]:
    """Claim → the volume that is reserved for it, for a pod's claims."""
    wanted = set(claims_of(look.pods[pod]))
    references = {name: spec(it).get("claimRef") or {} for name, it in look.volumes.items()}
    return {it["name"]: name for name, it in references.items() if it.get("name") in wanted}
