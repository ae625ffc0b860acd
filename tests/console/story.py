"""A cluster with a past worth looking at: three zones, a stolen volume, a pod that waits, a volume left behind."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import unsynced
from tests.support.volume_theft import take
from volsched.kube.meta import ZONE
from volsched.log.database import open_database
from volsched.log.migrations import migrate
from volsched.runtime.clock import SECOND, system_clock

RACK, ROW = "topology.example.com/rack", "topology.example.com/row"
HOSTILE = "<img src=x onerror=document.title='executed'>"
"""Nothing that has a name may be called so; labels of volumes' annotations, reasons and messages may say it."""
Manifest = dict[str, Any]


def cluster() -> list[Manifest]:
    nodes = [
        node(f"node-{i}", **{ZONE: f"zone-{'abc'[i // 3]}", RACK: f"rack-{i // 2}", ROW: f"row-{i % 2}"})
        for i in range(9)
    ]
    volumes = [
        it
        for i in range(9)
        for it in (volume(f"n{i}-small", "2Gi", f"node-{i}"), volume(f"n{i}-large", "6Gi", f"node-{i}"))
    ]
    return [LOCAL, *nodes, *volumes]


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"namespace": namespace}}


def workload(namespace: str, name: str, **claims: str) -> list[Manifest]:
    """A pod and its claims, each called as the pod and what it is for."""
    made = [claim(f"{purpose}-{name}", size, namespace=namespace) for purpose, size in claims.items()]
    return [*made, in_namespace(pod(name, *(f"{purpose}-{name}" for purpose in claims)), namespace)]


def tell(database_url: str) -> None:
    """Write the story into a new store, over the last hours until now."""
    database = open_database(database_url)
    unsynced(database)
    migrate(database)
    stepped = Stepped(database, owner="story", node_agent=True)
    stepped.now = system_clock() - 5 * 3600 * SECOND
    for name in ("shop", "bank"):
        stepped.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    stepped.create(*cluster())
    stepped.settle()
    for i in range(3):
        stepped.create(*workload("shop", f"db-{i}", data="5Gi", journal="1Gi"))
        stepped.settle()
    stepped.create(*workload("bank", "ledger-0", data="2Gi"))
    stepped.settle()
    stepped.now += 2 * 3600 * SECOND
    stepped.create(*workload("shop", "queue-0", small="2Gi", large="6Gi"))
    # One effect at a time, so that there is a moment between the two writes.
    whole = stepped.system.executor
    stepped.system.executor = replace(whole, batch=1)
    stepped.plan_and_write()
    (open_binding,) = [it for it in stepped.bindings() if it.open]
    stolen = next(leg.volume for leg in stepped.legs(open_binding.id) if leg.state == "assumed")
    take(stepped, stolen)
    stepped.system.executor = whole
    stepped.until(lambda: (stepped.cluster.get("Pod", "shop/queue-0") or {})["spec"].get("nodeName") is not None)
    stepped.settle()
    stepped.now += 3600 * SECOND
    stepped.create(*workload("shop", "archive-0", data="40Gi"))
    stepped.settle()
    hostile = volume("n8-odd", "1Gi", "node-8")
    hostile["metadata"]["annotations"] = {"note": HOSTILE}
    stepped.create(hostile)
    stepped.settle()
    stepped.system.close()
    database.close()


if __name__ == "__main__":
    import sys

    tell(f"sqlite:///{Path(sys.argv[1])}")
