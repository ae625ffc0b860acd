"""A cluster with nodes that an agent plays, and what tests ask of it."""

import itertools
from typing import Any

import pytest

from tests.support.clusters import LOCAL, Manifest, Stepped, claim, node, on_node, pod, volume
from volsched.cluster.port import whole
from volsched.kube.meta import ROLLBACK
from volsched.log.database import Database
from volsched.node_agent.agent import NodeAgent
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
CLASS_OF_DISKS = {**LOCAL, "metadata": {"name": "disks"}}


def played(database: Database, *objects: Manifest, owner: str = "test") -> Stepped:
    stepped = Stepped(database, [LOCAL, CLASS_OF_DISKS, *objects], owner=owner, node_agent=True)
    stepped.settle()
    return stepped


def csi(name: str, *, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> Manifest:
    """A volume that every node reaches once it is attached."""
    made = volume(name, "5Gi", "nowhere", "disks")
    spec = {key: it for key, it in made["spec"].items() if key not in ("local", "nodeAffinity")}
    disk = {"driver": "disks.example.com", "volumeHandle": name}
    return {**made, "spec": {**spec, "accessModes": list(modes), "csi": disk}}


def get(stepped: Stepped, kind: str, name: str) -> dict[str, Any]:
    key = name if kind in ("Node", "PersistentVolume") else f"default/{name}"
    return dict(stepped.cluster.get(kind, key) or {})


def phase(stepped: Stepped, name: str = "db") -> str | None:
    found: str | None = get(stepped, "Pod", name).get("status", {}).get("phase")
    return found


def data_state(stepped: Stepped, name: str = "data") -> str | None:
    found: str | None = get(stepped, "PersistentVolumeClaim", name)["status"].get("dataState")
    return found


def relabel(stepped: Stepped, name: str, labels: dict[str, str]) -> None:
    found = get(stepped, "Node", name)
    stepped.cluster.update("Node", {**found, "metadata": {**found["metadata"], "labels": labels}})


def mark(stepped: Stepped, name: str = "data") -> None:
    found = get(stepped, "PersistentVolumeClaim", name)
    marks = {**found["metadata"].get("annotations", {}), ROLLBACK: "uid-of-some-pod"}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**found, "metadata": {**found["metadata"], "annotations": marks}}
    )


def attached(stepped: Stepped) -> list[tuple[str, str, bool]]:
    return sorted(
        (it["spec"]["source"]["persistentVolumeName"], it["spec"]["nodeName"], it["status"]["attached"])
        for it in whole(stepped.cluster.list("VolumeAttachment")).objects
    )


def placed(name: str, host: str, *claims: str, **kw: Any) -> Manifest:
    """A pod that nobody scheduled."""
    made = pod(name, *claims, **kw)
    return on_node(made, host)


def agent_alone(stepped: Stepped, owner: str = "alone", *, on: str | None = None) -> NodeAgent:
    """An agent with a world of its own, which looks only when it is told to; it serves all nodes, or one."""
    ids, world = itertools.count(1), World(stepped.database)
    nodes = None if on is None else (lambda name: name == on)
    agent = NodeAgent(stepped.database, world, owner, lambda: f"{owner}-{next(ids)}", nodes=nodes)
    look(agent, stepped)
    return agent


def look(agent: NodeAgent, stepped: Stepped) -> None:
    agent.update(agent.world.catch_up(), stepped.now)


def bound_disk(database: Database) -> Stepped:
    """A claim that is bound to a volume which both nodes reach, and used by nobody."""
    stepped = Stepped(database, [CLASS_OF_DISKS, node("node-0"), node("node-1")])
    stepped.create(csi("disk"), claim("data", "4Gi", "disks"), pod("first", "data"))
    stepped.until(lambda: stepped.volume_of("data") == "disk" and stepped.node_of("first") is not None)
    stepped.cluster.delete("Pod", "default/first")
    stepped.settle()
    return stepped


def take_turns(stepped: Stepped, *agents: NodeAgent, rounds: int = 6) -> None:
    """All look before any acts, so that each decides on what the others are about to change."""
    for _ in range(rounds):
        stepped.now += SECOND
        for agent in agents:
            look(agent, stepped)
        for agent in agents:
            agent.step(stepped.now)
