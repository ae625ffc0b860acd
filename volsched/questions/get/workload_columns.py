"""Columns of pods, nodes, namespaces, StatefulSets and Kubernetes events."""

from collections.abc import Callable, Mapping

from volsched.kube.manifest import metadata, spec, status
from volsched.kube.meta import ZONE
from volsched.questions.get.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Column,
    Item,
    age,
    assumed_by,
    assumed_node,
    field_at,
    listed,
    phase,
)
from volsched.runtime.clock import parse_rfc3339

ROLE = "node-role.kubernetes.io/"


def _ready(item: Item) -> str:
    told = status(item.manifest).get("containerStatuses", ())
    containers = spec(item.manifest).get("containers", ())
    return f"{sum(1 for it in told if it.get('ready'))}/{len(containers)}"


def _restarts(item: Item) -> str:
    told = status(item.manifest).get("containerStatuses", ())
    return str(sum(int(it.get("restartCount", 0)) for it in told))


def _pod_status(item: Item) -> str:
    return str(status(item.manifest).get("reason") or phase(item))


def _readiness_gates(item: Item) -> str:
    gates = [it.get("conditionType") for it in spec(item.manifest).get("readinessGates", ())]
    met = {it.get("type") for it in status(item.manifest).get("conditions", ()) if it.get("status") == "True"}
    return f"{len(met.intersection(gates))}/{len(gates)}" if gates else NONE


def _node_status(item: Item) -> str:
    conditions = status(item.manifest).get("conditions", ())
    ready = next((it.get("status") for it in conditions if it.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    return ",".join([*words, *(("SchedulingDisabled",) if spec(item.manifest).get("unschedulable") else ())])


def _roles(item: Item) -> str:
    labels = metadata(item.manifest).get("labels", {})
    return listed(sorted(key.removeprefix(ROLE) for key in labels if key.startswith(ROLE)))


def _address(kind: str) -> Callable[[Item], str]:
    return lambda item: next(
        (it["address"] for it in status(item.manifest).get("addresses", ()) if it.get("type") == kind), NONE
    )


def _set_ready(item: Item) -> str:
    return f"{status(item.manifest).get('readyReplicas', 0)}/{spec(item.manifest).get('replicas', 1)}"


def _containers(field: str) -> Callable[[Item], str]:
    return lambda item: listed(
        it.get(field, "") for it in spec(spec(item.manifest).get("template", {})).get("containers", ())
    )


def _about(item: Item) -> str:
    about = item.manifest.get("involvedObject", {})
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _since(field: str) -> Callable[[Item], str]:
    """Events that were made under `events.k8s.io` tell one time alone, and that is another field's."""
    return lambda item: age(
        parse_rfc3339(str(item.manifest.get(field) or item.manifest.get("eventTime"))), item.now
    )


WORKLOAD_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "pod": (
        NAME,
        Column("READY", _ready),
        Column("STATUS", _pod_status),
        Column("RESTARTS", _restarts),
        AGE,
        Column("IP", field_at("status", "podIP"), wide=True),
        Column("NODE", field_at("spec", "nodeName"), wide=True),
        Column("NOMINATED NODE", field_at("status", "nominatedNodeName"), wide=True),
        Column("READINESS GATES", _readiness_gates, wide=True),
        Column("BINDING", assumed_by, wide=True),
        Column("ASSUMED NODE", assumed_node, wide=True),
    ),
    "node": (
        NAME,
        Column("STATUS", _node_status),
        Column("ROLES", _roles),
        AGE,
        Column("VERSION", field_at("status", "nodeInfo", "kubeletVersion", missing="")),
        Column("INTERNAL-IP", _address("InternalIP"), wide=True),
        Column("EXTERNAL-IP", _address("ExternalIP"), wide=True),
        Column("OS-IMAGE", field_at("status", "nodeInfo", "osImage", missing=UNKNOWN), wide=True),
        Column("KERNEL-VERSION", field_at("status", "nodeInfo", "kernelVersion", missing=UNKNOWN), wide=True),
        Column(
            "CONTAINER-RUNTIME",
            field_at("status", "nodeInfo", "containerRuntimeVersion", missing=UNKNOWN),
            wide=True,
        ),
        Column("ZONE", field_at("metadata", "labels", ZONE), wide=True),
    ),
    "namespace": (NAME, Column("STATUS", field_at("status", "phase", missing="Active")), AGE),
    "statefulset": (
        NAME,
        Column("READY", _set_ready),
        AGE,
        Column("CONTAINERS", _containers("name"), wide=True),
        Column("IMAGES", _containers("image"), wide=True),
    ),
    "notice": (
        Column("LAST SEEN", _since("lastTimestamp")),
        Column("TYPE", field_at("type", missing="")),
        Column("REASON", field_at("reason", missing="")),
        Column("OBJECT", _about),
        Column("SOURCE", field_at("source", "component", missing=""), wide=True),
        Column("MESSAGE", field_at("message", missing="")),
        Column("FIRST SEEN", _since("firstTimestamp"), wide=True),
        Column("COUNT", field_at("count", missing="1"), wide=True),
        Column("NAME", lambda item: item.name, wide=True),
    ),
}
