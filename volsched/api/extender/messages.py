"""The extender's messages: written with Go's field names, and read in any letter case as Go does."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from volsched.api.kubernetes.statuses import ApiError
from volsched.kube.documents import drop_nulls
from volsched.kube.kinds import KINDS
from volsched.kube.meta import DEFAULT_NAMESPACE
from volsched.kube.workloads import Pod

Manifest = Mapping[str, Any]
HIGHEST_SCORE = 10
"""An extender's maximum; kube-scheduler multiplies it by the weight, and by 10."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Filter and prioritize: a pod, and the remaining candidate nodes."""

    pod: Pod
    names: tuple[str, ...]
    objects: tuple[Manifest, ...] | None
    """The nodes as they were sent, where the client does not rely on our own copy."""


@dataclass(frozen=True, slots=True)
class Assignment:
    pod: str
    """The pod's key."""
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to be evicted from one node, by uid."""

    pods: tuple[str, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class Preemption:
    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The filter's answer about every requested node."""

    fitting: Collection[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """Nodes on which evicting other pods would not help."""
    error: str = ""


# --- requests -------------------------------------------------------------------------------------------


def read_candidates(body: bytes) -> Candidates:
    message = _message(body)
    names, nodes = message.get("nodenames"), message.get("nodes")
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(it, str) for it in names):
            raise ApiError(400, "NodeNames must be a list of strings")
        return Candidates(_pod(message), tuple(names), None)
    if not isinstance(nodes, dict):
        raise ApiError(400, "the message names no nodes: one of Nodes and NodeNames must be set")
    items = _any_case(nodes).get("items") or []
    if not isinstance(items, list):
        raise ApiError(400, "Nodes.items must be a list")
    return Candidates(_pod(message), tuple(_node_name(it, place) for place, it in enumerate(items)), tuple(items))


def read_assignment(body: bytes) -> Assignment:
    message = _message(body)
    name, node = _text(message, "PodName"), _text(message, "Node")
    namespace = _text(message, "PodNamespace", required=False) or DEFAULT_NAMESPACE
    return Assignment(f"{namespace}/{name}", _text(message, "PodUID", required=False), node)


def read_preemption(body: bytes) -> Preemption:
    message = _message(body)
    full, meta = message.get("nodenametovictims"), message.get("nodenametometavictims")
    victims = full if full is not None else meta
    if not isinstance(victims, dict):
        raise ApiError(400, "the message names no victims: NodeNameToVictims or NodeNameToMetaVictims must be set")
    read = _victim_uid if full is not None else _meta_uid
    return Preemption(_pod(message), {node: _victims(node, it, read) for node, it in victims.items()})


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body of the request is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ApiError(400, "the body of the request is not an object")
    return _any_case(message)


def _any_case(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in message.items()}


def _pod(message: Mapping[str, Any]) -> Pod:
    manifest = message.get("pod")
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(metadata, dict) or not metadata.get("name"):
        raise ApiError(400, "Pod must be a pod with a name")
    namespaced = {**metadata, "namespace": metadata.get("namespace") or DEFAULT_NAMESPACE}
    try:
        pod = KINDS["Pod"].read(drop_nulls({**manifest, "metadata": namespaced}))
    except ValidationError as error:
        first = error.errors()[0]
        raise ApiError(400, f"Pod.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except RecursionError:
        raise ApiError(400, "Pod is nested too deeply") from None
    assert isinstance(pod, Pod)
    return pod


def _node_name(node: Any, place: int) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise ApiError(400, f"Nodes.items[{place}] must be a node with a name")
    return name


def _text(message: Mapping[str, Any], name: str, *, required: bool = True) -> str:
    value = message.get(name.lower()) or ""
    if not isinstance(value, str) or (required and not value):
        raise ApiError(400, f"{name} must be a string{' that is not empty' if required else ''}")
    return value


def _victims(node: str, entry: Any, read: Any) -> Victims:
    fields = _any_case(entry) if isinstance(entry, dict) else {}
    pods, count = fields.get("pods") or [], fields.get("numpdbviolations") or 0
    if not isinstance(pods, list) or not isinstance(count, int):
        raise ApiError(400, f'the victims on node "{node}" must be Pods and NumPDBViolations')
    return Victims(tuple(read(node, pod) for pod in pods), count)


def _victim_uid(node: str, pod: Any) -> str:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if not isinstance(uid, str):
        raise ApiError(400, f'a victim on node "{node}" is no pod with a uid')
    return uid


def _meta_uid(node: str, pod: Any) -> str:
    uid = _any_case(pod).get("uid") if isinstance(pod, dict) else None
    if not isinstance(uid, str):
        raise ApiError(400, f'a victim on node "{node}" has no UID')
    return uid


# --- answers --------------------------------------------------------------------------------------------


def filter_result(answer: FilterAnswer, candidates: Candidates | None) -> dict[str, Any]:
    """The nodes in the form in which they were sent. Both null, without an error, would say that no node fits."""
    names: list[str] | None = None
    nodes: dict[str, Any] | None = None
    if candidates is not None and not answer.error:
        if candidates.objects is None:
            names = [name for name in candidates.names if name in answer.fitting]
        else:
            pairs = zip(candidates.names, candidates.objects, strict=True)
            nodes = {"metadata": {}, "items": [node for name, node in pairs if name in answer.fitting]}
    return {
        "Nodes": nodes,
        "NodeNames": names,
        "FailedNodes": dict(answer.failed),
        "FailedAndUnresolvableNodes": dict(answer.unresolvable),
        "Error": answer.error,
    }


def host_priorities(names: Sequence[str], scores: Mapping[str, int]) -> list[dict[str, Any]]:
    """Scores of 0..100 as 0..10, rounded half up."""
    return [{"Host": name, "Score": (scores.get(name, 0) + 5) * HIGHEST_SCORE // 100} for name in names]


def binding_result(error: str = "") -> dict[str, Any]:
    return {"Error": error}


def preemption_result(victims: Mapping[str, Victims]) -> dict[str, Any]:
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in it.pods], "NumPDBViolations": it.violations}
            for node, it in victims.items()
        }
    }
