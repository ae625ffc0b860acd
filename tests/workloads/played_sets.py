"""Sets, ephemeral claims and what they own on a cluster of local disks, and looks at them."""

from typing import Any

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, pod, volume
from volsched.cluster.port import whole


def disks(nodes: int, each: int = 1) -> list[Manifest]:
    hosts = [node(f"node-{i}") for i in range(nodes)]
    return [
        LOCAL,
        *hosts,
        *(volume(f"disk-{i}-{j}", "2Gi", f"node-{i}") for i in range(nodes) for j in range(each)),
    ]


def ephemeral_pod(name: str, *volumes: str) -> Manifest:
    template = {"metadata": {"labels": {"made": "yes"}}, "spec": claim("x", "1Gi")["spec"]}
    made = pod(name)
    made["spec"]["volumes"] = [{"name": it, "ephemeral": {"volumeClaimTemplate": template}} for it in volumes]
    return made


def names(stepped: Stepped, kind: str) -> list[str]:
    return [it["metadata"]["name"] for it in whole(stepped.cluster.list(kind)).objects]


def change(stepped: Stepped, kind: str, key: str, *, status: bool = False, **fields: Any) -> None:
    found = dict(stepped.cluster.get(kind, key) or {})
    part = "status" if status else "spec"
    stepped.cluster.update(kind, {**found, part: {**found.get(part, {}), **fields}}, status=status)


def uid(stepped: Stepped, kind: str, name: str) -> str:
    return str(((stepped.cluster.get(kind, f"default/{name}") or {}).get("metadata") or {}).get("uid", ""))
