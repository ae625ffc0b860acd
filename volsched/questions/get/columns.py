"""The columns of `get`, by kind: those of kubectl, and with `wide` those that only volsched has.

Pure: a column is a function of the stored object and of the time of display.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from volsched.kube.manifest import annotations, metadata, spec, status
from volsched.kube.meta import BETA_STORAGE_CLASS, DEFAULT_CLASS_KEYS, SELECTED_NODE, zone_of
from volsched.log.events.fold import AttemptState, BindingState, ObjectState
from volsched.log.events.streams import ATTEMPT, BINDING
from volsched.questions.get.documents import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    Column,
    Item,
    Manifest,
    age,
    assumed_by,
    assumed_node,
    field_at,
    list_text,
    phase,
    value_text,
)
from volsched.runtime.clock import parse_rfc3339, rfc3339

# Columns of volumes, claims, classes and CSI objects.

MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: object) -> str:
    return ",".join(MODES.get(str(mode), str(mode)) for mode in modes) if isinstance(modes, list) else ""


def _class(item: Item) -> str:
    annotated = annotations(item.manifest).get(BETA_STORAGE_CLASS)
    return value_text(
        annotated if annotated is not None else spec(item.manifest).get("storageClassName"), missing=""
    )


def _volume_mode(item: Item) -> str:
    return str(spec(item.manifest).get("volumeMode", "Filesystem"))


def _volume_claim(item: Item) -> str:
    ref = spec(item.manifest).get("claimRef")
    return _ref(ref) if isinstance(ref, Mapping) else ""


def _assumed_claim(item: Item) -> str:
    if item.assumed_by is None or not isinstance(item.state, ObjectState) or item.state.assumed is None:
        return NONE
    ref = spec(item.state.assumed.patch).get("claimRef")
    return _ref(ref) if isinstance(ref, Mapping) else NONE


def _ref(ref: Manifest) -> str:
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}"


def _of_bound_claim(field: str, cell: Callable[[Any], str]) -> Callable[[Item], str]:
    """A cell of the claim's volume, as in kubectl; empty if there is no volume."""
    return lambda item: cell(status(item.manifest).get(field)) if spec(item.manifest).get("volumeName") else ""


def _storage(capacity: object) -> str:
    return str(capacity.get("storage", "")) if isinstance(capacity, Mapping) else ""


def _class_name(item: Item) -> str:
    is_default = any(annotations(item.manifest).get(key) == "true" for key in DEFAULT_CLASS_KEYS)
    return f"{item.name} (default)" if is_default else item.name


def _topology(item: Item) -> str:
    labels = item.manifest.get("nodeTopology", {}).get("matchLabels", {})
    return list_text(f"{key}={value}" for key, value in sorted(labels.items()))


def _driver_modes(item: Item) -> str:
    return list_text(spec(item.manifest).get("volumeLifecycleModes", ("Persistent",)))


def _tokens(item: Item) -> str:
    audiences = [str(it.get("audience", "")) for it in spec(item.manifest).get("tokenRequests", ())]
    return list_text(audiences) if audiences else UNSET


STORAGE_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "volume": (
        NAME,
        Column("CAPACITY", lambda item: _storage(spec(item.manifest).get("capacity"))),
        Column("ACCESS MODES", lambda item: _modes(spec(item.manifest).get("accessModes"))),
        Column("RECLAIM POLICY", field_at("spec", "persistentVolumeReclaimPolicy", missing="")),
        Column("STATUS", phase),
        Column("CLAIM", _volume_claim),
        Column("STORAGECLASS", _class),
        Column("VOLUMEATTRIBUTESCLASS", field_at("spec", "volumeAttributesClassName", missing=UNSET)),
        Column("REASON", field_at("status", "reason", missing="")),
        AGE,
        Column("VOLUMEMODE", _volume_mode, wide=True),
        Column("BINDING", assumed_by, wide=True),
        Column("ASSUMED CLAIM", _assumed_claim, wide=True),
        Column("NODE", assumed_node, wide=True),
    ),
    "claim": (
        NAME,
        Column("STATUS", phase),
        Column("VOLUME", field_at("spec", "volumeName", missing="")),
        Column("CAPACITY", _of_bound_claim("capacity", _storage)),
        Column("ACCESS MODES", _of_bound_claim("accessModes", _modes)),
        Column("STORAGECLASS", _class),
        Column("VOLUMEATTRIBUTESCLASS", field_at("spec", "volumeAttributesClassName", missing=UNSET)),
        AGE,
        Column("VOLUMEMODE", _volume_mode, wide=True),
        Column("SELECTED NODE", field_at("metadata", "annotations", SELECTED_NODE), wide=True),
        Column("BINDING", assumed_by, wide=True),
        Column("NODE", assumed_node, wide=True),
    ),
    "class": (
        Column("NAME", _class_name),
        Column("PROVISIONER", field_at("provisioner", missing="")),
        Column("RECLAIMPOLICY", field_at("reclaimPolicy", missing="Delete")),
        Column("VOLUMEBINDINGMODE", field_at("volumeBindingMode", missing="Immediate")),
        Column("ALLOWVOLUMEEXPANSION", field_at("allowVolumeExpansion", missing="false")),
        AGE,
    ),
    "driver": (
        NAME,
        Column("ATTACHREQUIRED", field_at("spec", "attachRequired", missing="true")),
        Column("PODINFOONMOUNT", field_at("spec", "podInfoOnMount", missing="false")),
        Column("STORAGECAPACITY", field_at("spec", "storageCapacity", missing="false")),
        Column("TOKENREQUESTS", _tokens),
        Column("REQUIRESREPUBLISH", field_at("spec", "requiresRepublish", missing="false")),
        Column("MODES", _driver_modes),
        AGE,
    ),
    "csinode": (NAME, Column("DRIVERS", lambda item: str(len(spec(item.manifest).get("drivers", ())))), AGE),
    "capacity": (
        NAME,
        Column("STORAGECLASS", field_at("storageClassName", missing="")),
        Column("CAPACITY", field_at("capacity")),
        AGE,
        Column("MAXIMUM", field_at("maximumVolumeSize"), wide=True),
        Column("TOPOLOGY", _topology, wide=True),
    ),
    "attachment": (
        NAME,
        Column("ATTACHER", field_at("spec", "attacher", missing="")),
        Column("PV", field_at("spec", "source", "persistentVolumeName", missing="")),
        Column("NODE", field_at("spec", "nodeName", missing="")),
        Column("ATTACHED", field_at("status", "attached", missing="false")),
        AGE,
    ),
}


# kubectl's columns for kinds that are only stored.


def _controller(item: Item) -> str:
    references = metadata(item.manifest).get("ownerReferences", ())
    owner: Any = next((it for it in references if isinstance(it, dict) and it.get("controller")), None)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    return f"{str(owner.get('kind', '')).lower()}{group and f'.{group}'}/{owner.get('name', '')}"


def _ports(item: Item) -> str:
    ports = spec(item.manifest).get("ports", ())
    return list_text(f"{it.get('port')}/{it.get('protocol', 'TCP')}" for it in ports if isinstance(it, dict))


def _selector(item: Item) -> str:
    selector = spec(item.manifest).get("selector")
    return list_text(f"{name}={value}" for name, value in selector.items()) if isinstance(selector, dict) else NONE


STORED_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "service": (
        NAME,
        Column("TYPE", field_at("spec", "type", missing="ClusterIP")),
        Column("CLUSTER-IP", field_at("spec", "clusterIP")),
        Column("EXTERNAL-IP", lambda item: list_text(spec(item.manifest).get("externalIPs", ()))),
        Column("PORT(S)", _ports),
        AGE,
        Column("SELECTOR", _selector, wide=True),
    ),
    "revision": (
        NAME,
        Column("CONTROLLER", _controller),
        Column("REVISION", lambda item: value_text(item.manifest.get("revision"), missing="0")),
        AGE,
    ),
    "disruptionbudget": (
        NAME,
        Column("MIN AVAILABLE", field_at("spec", "minAvailable", missing="N/A")),
        Column("MAX UNAVAILABLE", field_at("spec", "maxUnavailable", missing="N/A")),
        Column("ALLOWED DISRUPTIONS", field_at("status", "disruptionsAllowed", missing="0")),
        AGE,
    ),
    "priorityclass": (
        NAME,
        Column("VALUE", field_at("value", missing="0")),
        Column("GLOBAL-DEFAULT", field_at("globalDefault", missing="false")),
        AGE,
        Column("PREEMPTIONPOLICY", field_at("preemptionPolicy", missing="PreemptLowerPriority")),
    ),
    "lease": (NAME, Column("HOLDER", field_at("spec", "holderIdentity")), AGE),
}


# Columns of pods, nodes, namespaces, StatefulSets and Kubernetes events.

ROLE = "node-role.kubernetes.io/"


def _ready(item: Item) -> str:
    statuses = status(item.manifest).get("containerStatuses")
    if statuses is None:
        # The past of an observed pod: its readiness is not recorded.
        return "-" if phase(item) == "Running" else f"0/{len(spec(item.manifest).get('containers', ()))}"
    containers = spec(item.manifest).get("containers", ())
    return f"{sum(1 for it in statuses if it.get('ready'))}/{len(containers)}"


def _restarts(item: Item) -> str:
    statuses = status(item.manifest).get("containerStatuses", ())
    return str(sum(int(it.get("restartCount", 0)) for it in statuses))


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
    return list_text(sorted(key.removeprefix(ROLE) for key in labels if key.startswith(ROLE)))


def _zone(item: Item) -> str:
    return zone_of(metadata(item.manifest).get("labels") or {}) or NONE


def _address(kind: str) -> Callable[[Item], str]:
    return lambda item: next(
        (it["address"] for it in status(item.manifest).get("addresses", ()) if it.get("type") == kind), NONE
    )


def _set_ready(item: Item) -> str:
    return f"{status(item.manifest).get('readyReplicas', 0)}/{spec(item.manifest).get('replicas', 1)}"


def _containers(field: str) -> Callable[[Item], str]:
    return lambda item: list_text(
        it.get(field, "") for it in spec(spec(item.manifest).get("template", {})).get("containers", ())
    )


def _about(item: Item) -> str:
    involved = item.manifest.get("involvedObject", {})
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _since(field: str) -> Callable[[Item], str]:
    """The age since a field; events written as `events.k8s.io` have only one time, in another field."""
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
        Column("ZONE", _zone, wide=True),
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
        Column("LAST SEEN", _since("lastTimestamp"), ages=True),
        Column("TYPE", field_at("type", missing="")),
        Column("REASON", field_at("reason", missing="")),
        Column("OBJECT", _about),
        Column("SOURCE", field_at("source", "component", missing=""), wide=True),
        Column("MESSAGE", field_at("message", missing="")),
        Column("FIRST SEEN", _since("firstTimestamp"), wide=True, ages=True),
        Column("COUNT", field_at("count", missing="1"), wide=True),
        Column("NAME", lambda item: item.name, wide=True),
    ),
}


@cache
def columns_of(noun: str, *, wide: bool) -> tuple[Column, ...]:
    # Kinds that are served but never stored have a name and an age, like all kinds.
    return tuple(column for column in COLUMNS.get(noun, (NAME, AGE)) if wide or not column.wide)


def _of_binding(cell: Callable[[BindingState, int], str]) -> Callable[[Item], str]:
    return lambda item: cell(item.state, item.now) if isinstance(item.state, BindingState) else ""


def _of_attempt(cell: Callable[[AttemptState, int], str]) -> Callable[[Item], str]:
    return lambda item: cell(item.state, item.now) if isinstance(item.state, AttemptState) else ""


def _legs(state: BindingState) -> str:
    return list_text(f"{leg.claim.rpartition('/')[2]}→{leg.volume or '?'}:{leg.state}" for leg in state.legs)


def _deadline(state: BindingState) -> str:
    deadline = state.plan.get("deadline")
    return NONE if deadline is None else rfc3339(deadline)


def _pod_name(pod: object) -> str:
    return str(pod).rpartition("/")[2]


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    **STORAGE_COLUMNS,
    **WORKLOAD_COLUMNS,
    **STORED_COLUMNS,
    BINDING: (
        NAME,
        Column("POD", _of_binding(lambda it, _: _pod_name(it.plan["pod"]))),
        Column("NODE", _of_binding(lambda it, _: str(it.plan["node"]))),
        Column("STATE", _of_binding(lambda it, _: it.state)),
        Column("LEGS", _of_binding(lambda it, _: str(len(it.legs)))),
        Column("AGE", _of_binding(lambda it, now: age(it.planned_at, now)), ages=True),
        Column("VOLUMES", _of_binding(lambda it, _: _legs(it)), wide=True),
        Column("DEADLINE", _of_binding(lambda it, _: _deadline(it)), wide=True),
        Column("REASON", _of_binding(lambda it, _: it.reason or NONE), wide=True),
    ),
    ATTEMPT: (
        NAME,
        Column("POD", _of_attempt(lambda it, _: _pod_name(it.made["pod"]))),
        Column("OUTCOME", _of_attempt(lambda it, _: str(it.made["outcome"]))),
        Column("NODE", _of_attempt(lambda it, _: value_text(it.made.get("node")))),
        Column("COUNT", _of_attempt(lambda it, _: str(it.times))),
        Column("LAST SEEN", _of_attempt(lambda it, now: age(it.last_at, now)), ages=True),
        Column("MESSAGE", _of_attempt(lambda it, _: value_text(it.made["detail"].get("message")))),
        Column("DECIDED AT", _of_attempt(lambda it, _: str(it.decided_at)), wide=True),
        Column("DECIDER", _of_attempt(lambda it, _: str(it.made["decider"])), wide=True),
    ),
}
"""Noun → its columns, in kubectl's order; ours come last."""
