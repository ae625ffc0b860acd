"""The clusters that decisions are measured on: those that have targets, and some beside.

Those beside it: local volumes of which hardly two nodes have the same, pods that ask for more than volumes, and
pods that ask for none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.kinds import KINDS, Object
from volsched.kube.meta import BIND_COMPLETED, HOSTNAME, ZONE
from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod

ZONES = ("a", "b", "c")
NAMESPACE = "bench"
CLASS = "bench"
DRIVER = "csi.example.com"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
APP = {"app": "bench"}
RUNS = {
    "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
}
ALONE = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": APP}}
EVENLY = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": APP},
}
CHOOSY = {
    **RUNS,
    "nodeSelector": {"disk": "ssd"},
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ALONE]}},
    "topologySpreadConstraints": [EVENLY],
}
VOLUMES_A_NODE = 10
VOLUMES_A_ZONE = 10_000
MOST_CLAIMS = 3
GIB_OF_CLAIMS = (5, 6, 7)
# Steps through the sizes so that hardly two nodes are alike, without a random number.
STRIDE = 7919


@dataclass(frozen=True, slots=True)
class BenchCluster:
    objects: tuple[Object, ...]
    bound: bool = False
    """Its pods use claims that are bound already."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """What its pods ask for besides volumes. Where they do, each is put on its node, for the next one to meet."""


def claims_of(prefix: str, count: int, *, odd: int = 0) -> list[Claim]:
    """Claims that look for volumes; `odd` other than 0 gives sizes that no other number gives."""
    made = []
    for place in range(count):
        mebibytes = 1024 * GIB_OF_CLAIMS[place] - odd * 3 % 1024
        made.append(_claim(f"{prefix}-{place}", f"{mebibytes}Mi"))
    return made


def pod_of(name: str, claims: list[str], **asks: Any) -> Pod:
    volumes = [
        {"name": f"v{place}", "persistentVolumeClaim": {"claimName": it}} for place, it in enumerate(claims)
    ]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": APP}
    pod = KINDS["Pod"].read({"metadata": metadata, "spec": {"volumes": volumes, **asks}})
    assert isinstance(pod, Pod)
    return pod


def _claim(name: str, size: str, *, volume: str = "") -> Claim:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "resources": {"requests": {"storage": size}},
    }
    if volume:
        metadata["annotations"] = {BIND_COMPLETED: "yes"}
        spec["volumeName"] = volume
    claim = KINDS["PersistentVolumeClaim"].read({"metadata": metadata, "spec": spec})
    assert isinstance(claim, Claim)
    return claim


def _node(index: int) -> Object:
    labels = {HOSTNAME: _name(index), ZONE: ZONES[index % len(ZONES)]}
    return KINDS["Node"].read({"metadata": {"name": _name(index), "labels": labels}})


def _equipped(index: int) -> Object:
    """A node that says what it has; one in ten is for others, one in four has the wrong disks."""
    labels = {HOSTNAME: _name(index), ZONE: ZONES[index % len(ZONES)], "disk": "ssd" if index % 4 else "hdd"}
    taints = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}] if index % 10 == 0 else []
    status = {"allocatable": {"cpu": str(4 + index % 3 * 4), "memory": "32Gi", "pods": "110"}}
    manifest = {"metadata": {"name": _name(index), "labels": labels}, "spec": {"taints": taints}, "status": status}
    return KINDS["Node"].read(manifest)


def _name(index: int) -> str:
    return f"node-{index:05}"


def _class(provisioner: str, *, zones: tuple[str, ...] = ()) -> Object:
    manifest: dict[str, Any] = {
        "metadata": {"name": CLASS},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zones:
        manifest["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
    return KINDS["StorageClass"].read(manifest)


def _volume(index: int, mebibytes: int, *, key: str, value: str, phase: str = "Available") -> Object:
    name = f"volume-{index:06}"
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "capacity": {"storage": f"{mebibytes}Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": CLASS,
        "local": {"path": f"/mnt/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return KINDS["PersistentVolume"].read({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})


def _local(nodes: int) -> BenchCluster:
    """Ten local volumes on each node, of 1 to 10 Gi."""
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *_disks(nodes)))


def _constrained(nodes: int) -> BenchCluster:
    """The same volumes, for pods with a node selector, requests, anti-affinity and spread; some nodes tainted."""
    return BenchCluster((_class(NO_PROVISIONER), *map(_equipped, range(nodes)), *_disks(nodes)), asks=CHOOSY)


def _without_claims(nodes: int) -> BenchCluster:
    return BenchCluster(tuple(map(_equipped, range(nodes))), asks=RUNS)


def _disks(nodes: int) -> list[Object]:
    return [
        _volume(index, 1024 * (1 + index % 10), key=HOSTNAME, value=_name(index // VOLUMES_A_NODE))
        for index in range(nodes * VOLUMES_A_NODE)
    ]


def _uneven(nodes: int) -> BenchCluster:
    """Ten local volumes on each node, of sizes that hardly two nodes have in common."""
    volumes = (
        _volume(index, 1024 + index * STRIDE % 19_000, key=HOSTNAME, value=_name(index // VOLUMES_A_NODE))
        for index in range(nodes * VOLUMES_A_NODE)
    )
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes))


def _zonal(nodes: int, a_zone: int = VOLUMES_A_ZONE) -> BenchCluster:
    """Ten thousand volumes in each of three zones, fewer where there are few nodes."""
    count = min(nodes * VOLUMES_A_NODE, a_zone) * len(ZONES)
    volumes = (
        _volume(index, 1024 * (1 + index % 10), key=ZONE, value=ZONES[index % len(ZONES)])
        for index in range(count)
    )
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes))


def _dynamic(nodes: int) -> BenchCluster:
    """Provisioning in two of three zones."""
    return BenchCluster((_class(DRIVER, zones=("a", "b")), *map(_node, range(nodes))))


def _capacity(nodes: int) -> BenchCluster:
    """Provisioning by a driver that publishes what it can still create on each node."""
    published = (
        KINDS["CSIStorageCapacity"].read(
            {
                "metadata": {"name": f"capacity-{index:05}", "namespace": "csi"},
                "storageClassName": CLASS,
                "nodeTopology": {"matchLabels": {HOSTNAME: _name(index)}},
                "capacity": f"{50_000 + index * STRIDE % 100_000}Mi",
            }
        )
        for index in range(nodes)
    )
    driver = KINDS["CSIDriver"].read({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}})
    return BenchCluster((_class(DRIVER), driver, *map(_node, range(nodes)), *published))


def _bound(nodes: int) -> BenchCluster:
    """Claims bound in one zone."""
    volumes = [_volume(place, 10_240, key=ZONE, value=ZONES[-1], phase="Bound") for place in range(MOST_CLAIMS)]
    claims = [_claim(f"bound-{place}", "5Gi", volume=f"volume-{place:06}") for place in range(MOST_CLAIMS)]
    return BenchCluster((_class(NO_PROVISIONER), *map(_node, range(nodes)), *volumes, *claims), bound=True)


CLUSTERS: dict[str, Callable[[int], BenchCluster]] = {
    "local": _local,
    "local, uneven": _uneven,
    "zonal": _zonal,
    "dynamic": _dynamic,
    "capacity": _capacity,
    "bound": _bound,
    "local, constrained": _constrained,
    "no claims": _without_claims,
}
CLAIM_COUNTS = (1, MOST_CLAIMS)


def counts_of(name: str) -> tuple[int, ...]:
    """How many claims the pods of the rows have."""
    return (0,) if name == "no claims" else CLAIM_COUNTS


def half_of(name: str, nodes: int) -> BenchCluster:
    """The cluster with half the nodes and half the volumes."""
    half = max(1, nodes // 2)
    return _zonal(half, VOLUMES_A_ZONE // 2) if name == "zonal" else CLUSTERS[name](half)
