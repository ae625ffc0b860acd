"""Plays a live scenario on a server with Kubernetes' API, and takes snapshots of its cluster."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.lab.conformance.live_scenario import NAMESPACE, LiveOutcome, LiveScenario, Step, is_expected

# A live scenario's view of a cluster: what users and controllers act upon.
#
# Omitted: what no two runs share (uids, times, versions), and our own annotations.

OURS = "volsched.io"
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Json = Mapping[str, Any]


def snapshot(items: Mapping[str, Iterable[Json]], events: Iterable[Json]) -> dict[str, Any]:
    """`items` by kind: pod, pvc, pv, sts."""
    return {
        "events": sorted(list(event) for event in {_event(it) for it in events}),
        "pods": {_name(it): _pod(it) for it in items["pod"]},
        "pvcs": {_name(it): _claim(it) for it in items["pvc"]},
        "pvs": {_name(it): _volume(it) for it in items["pv"]},
        "sts": {_name(it): _stateful_set(it) for it in items["sts"]},
    }


def _event(event: Json) -> tuple[str, ...]:
    about = event.get("involvedObject", {})
    return (
        about.get("kind", ""),
        about.get("name", ""),
        event.get("type", ""),
        event.get("reason", ""),
        _UID.sub("<UID>", event.get("message", "")),
    )


def _name(manifest: Json) -> str:
    return str(manifest["metadata"]["name"])


def _pod(pod: Json) -> dict[str, Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    scheduled = next((it for it in status.get("conditions") or () if it["type"] == "PodScheduled"), None)
    return {
        "cond": scheduled and {name: scheduled.get(name, "") for name in ("message", "reason", "status")},
        "node": spec.get("nodeName"),
        "nominated": status.get("nominatedNodeName"),
        "terminating": _terminating(pod),
    }


def _claim(claim: Json) -> dict[str, Any]:
    spec, status = claim.get("spec", {}), claim.get("status", {})
    return {
        "ann": _annotations(claim),
        "cap": (status.get("capacity") or {}).get("storage"),
        "class": spec.get("storageClassName"),
        "fin": sorted(claim["metadata"].get("finalizers") or ()),
        "modes": status.get("accessModes"),
        "phase": status.get("phase"),
        "terminating": _terminating(claim),
        "volume": spec.get("volumeName", ""),
    }


def _volume(volume: Json) -> dict[str, Any]:
    spec, status = volume.get("spec", {}), volume.get("status", {})
    reference = spec.get("claimRef")
    named = reference and f"{reference.get('namespace', '')}/{reference.get('name', '')}"
    return {
        "aff": spec.get("nodeAffinity"),
        "ann": _annotations(volume),
        "claimRef": named and named + ("+uid" if reference.get("uid") else ""),
        "fin": sorted(volume["metadata"].get("finalizers") or ()),
        "labels": volume["metadata"].get("labels") or {},
        "msg": _UID.sub("<UID>", status.get("message", "")),
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "terminating": _terminating(volume),
    }


def _stateful_set(stateful_set: Json) -> dict[str, Any]:
    return {
        "replicas": stateful_set.get("status", {}).get("replicas", 0),
        "terminating": _terminating(stateful_set),
    }


def _annotations(manifest: Json) -> dict[str, str]:
    kept = manifest["metadata"].get("annotations") or {}
    return {name: value for name, value in kept.items() if not name.partition("/")[0].endswith(OURS)}


def _terminating(manifest: Json) -> bool:
    return "deletionTimestamp" in manifest["metadata"]


# The player uses the public API alone, so the same steps judge a real cluster and ours.

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
PLURALS = {
    "pod": ("api/v1", "pods"),
    "pvc": ("api/v1", "persistentvolumeclaims"),
    "pv": ("api/v1", "persistentvolumes"),
    "node": ("api/v1", "nodes"),
    "ns": ("api/v1", "namespaces"),
    "sc": ("apis/storage.k8s.io/v1", "storageclasses"),
    "csinode": ("apis/storage.k8s.io/v1", "csinodes"),
    "csidriver": ("apis/storage.k8s.io/v1", "csidrivers"),
    "cap": ("apis/storage.k8s.io/v1", "csistoragecapacities"),
    "sts": ("apis/apps/v1", "statefulsets"),
    "event": ("api/v1", "events"),
}
NAMESPACED = frozenset({"pod", "pvc", "cap", "sts", "event"})
KINDS = {
    "Pod": "pod",
    "PersistentVolumeClaim": "pvc",
    "PersistentVolume": "pv",
    "Node": "node",
    "Namespace": "ns",
    "StorageClass": "sc",
    "CSINode": "csinode",
    "CSIDriver": "csidriver",
    "CSIStorageCapacity": "cap",
    "StatefulSet": "sts",
}
CLEARED = ("sts", "pod", "pvc", "pv", "cap", "csinode", "csidriver", "sc", "node")
"""Kinds that a scenario may leave, in the order of deletion: users before what they use."""
CLEAR_SECONDS = 60
STEADY_SECONDS = 1.0
"""How long an expected state must last, if the scenario does not give a time."""
REQUEST_SECONDS = 0.02
"""Between two objects: the duration of a request, where time does not pass by itself."""


class LiveApi(Protocol):
    """A server under test."""

    def answer(self, method: str, path: str, *, body: Any = None, content: str = JSON) -> tuple[int, Any]:
        """Status code and body, whatever they are."""


class Pace(Protocol):
    """How time passes in the scenario: really, or on a simulated clock."""

    def rest(self, seconds: float) -> None:
        """Let the cluster work for so long."""

    def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Let it work until the condition holds; False: it did not in time."""


class UnplayableError(Exception):
    """The server is not suitable for this; nothing was changed there."""


@dataclass(slots=True)
class Player:
    api: LiveApi
    pace: Pace
    scenario: LiveScenario
    patience: float | None = None
    """With it, a snapshot is taken as soon as it is as expected and stays so, or when nothing new has happened for
    so many seconds: for servers in real time, on machines that may be busy. Without, it is taken when the scenario
    says."""
    _outcome: LiveOutcome = field(default_factory=LiveOutcome)

    def play(self) -> LiveOutcome:
        """Play it from an empty cluster, and leave an empty one."""
        self._check_empty()
        space = self.scenario.namespace
        self._create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        try:
            for step in self.scenario.steps:
                self._step(step)
        finally:
            self._clear()
        return self._outcome

    def _step(self, step: Step) -> None:
        match step:
            case ("apply", manifests):
                for manifest in manifests:
                    self._apply(self._placed(manifest))
                    self.pace.rest(REQUEST_SECONDS)
            case ("wait", kind, name, what, seconds):
                met = self.pace.until(lambda: _reached(self._read(kind, name), what), self._limit(seconds))
                self._outcome.waits.append([kind, name, what, met])
            case ("patch", kind, name, body, subresource):
                path = self._path(kind, name) + (f"/{subresource}" if subresource else "")
                code, answer = self.api.answer("PATCH", path, body=self._placed(body), content=MERGE_PATCH)
                self._note_refusal(kind, name, code, answer)
            case ("delete", kind, name, grace):
                code, answer = self._delete(kind, name, grace)
                self._note_refusal(kind, name, code, answer)
            case ("sleep", seconds):
                self.pace.rest(seconds)
            case ("snap", label, seconds):
                self._wait_for(label, self.scenario.hold_seconds if seconds is None else seconds)
                self._outcome.snaps[label] = self._snapshot()

    def _limit(self, seconds: float) -> float:
        """Limit of the next wait: as long as for a snapshot if a real control plane met the condition."""
        waits = (self.scenario.real or {}).get("waits", ())
        number = len(self._outcome.waits)
        was_met = number < len(waits) and waits[number][-1]
        return max(seconds, self.patience) if was_met and self.patience is not None else seconds

    def _wait_for(self, label: str, seconds: float) -> None:
        if self.patience is None:
            self.pace.rest(seconds)
            return
        looks: list[dict[str, Any]] = []

        def is_new() -> bool:
            """Whether the state is new: one that was seen before is no progress, and may come and go forever."""
            look = self._snapshot()
            if look in looks:
                return False
            looks.append(look)
            return True

        def differs() -> bool:
            return not is_expected(self.scenario, label, self._snapshot())

        while self.pace.until(is_new, self.patience):
            if not self.pace.until(differs, STEADY_SECONDS):
                return

    def _apply(self, manifest: Mapping[str, Any]) -> None:
        code, told = self._create(manifest)
        kind, name = manifest["kind"], manifest["metadata"].get("name", "")
        self._note_refusal(KINDS.get(kind, kind), name, code, told)
        if code == 201 and kind == "Node" and "status" in manifest:
            path = self._path("node", name) + "/status"
            self.api.answer("PATCH", path, body={"status": manifest["status"]}, content=MERGE_PATCH)

    def _create(self, manifest: Mapping[str, Any]) -> tuple[int, Any]:
        return self.api.answer("POST", self._path(KINDS[manifest["kind"]]), body=manifest)

    def _delete(self, kind: str, name: str, grace: int) -> tuple[int, Any]:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace}
        return self.api.answer("DELETE", self._path(kind, name), body=body)

    def _read(self, kind: str, name: str) -> Mapping[str, Any]:
        code, told = self.api.answer("GET", self._path(kind, name))
        return told if code == 200 and isinstance(told, dict) else {}

    def _items(self, kind: str) -> list[Mapping[str, Any]]:
        """Objects of the scenario's namespace, or cluster-scoped ones."""
        return self._listed(self._path(kind))

    def _listed(self, path: str) -> list[Mapping[str, Any]]:
        code, answer = self.api.answer("GET", path)
        if code != 200 or not isinstance(answer, dict):
            raise UnplayableError(f"{path} is answered with {code}; check the server and its permissions")
        return list(answer.get("items") or ())

    def _path(self, kind: str, name: str | None = None) -> str:
        version, plural = PLURALS[kind]
        within = f"/namespaces/{self.scenario.namespace}" if kind in NAMESPACED else ""
        return f"/{version}{within}/{plural}" + ("" if name is None else f"/{name}")

    def _placed(self, value: Any) -> Any:
        """The value with the scenario's namespace, and the uids of claims that exist by now."""
        if isinstance(value, dict):
            return {key: self._uid(item) if key == "uid" else self._placed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._placed(item) for item in value]
        return self.scenario.namespace if value == NAMESPACE else value

    def _uid(self, value: Any) -> Any:
        if not isinstance(value, str) or not value.startswith("@"):
            return value
        return self._read("pvc", value[1:]).get("metadata", {}).get("uid", value)

    def _note_refusal(self, kind: str, name: str, code: int, answer: Any) -> None:
        if code >= 300:
            message = answer.get("message", "") if isinstance(answer, dict) else str(answer)
            self._outcome.refused.append([kind, name, code, _UID.sub("<UID>", message)])

    def _snapshot(self) -> dict[str, Any]:
        space = self.scenario.namespace
        events = self._listed("/api/v1/events")
        return snapshot(
            {kind: self._items(kind) for kind in ("pod", "pvc", "pv", "sts")},
            [
                it
                for it in events
                if it.get("involvedObject", {}).get("namespace", space) in (space, "default", "")
            ],
        )

    def _check_empty(self) -> None:
        """Existing nodes and volumes would change the outcome, and be deleted."""
        for kind in ("node", "pv", "sc"):
            for item in self._items(kind):
                raise UnplayableError(
                    f"the server has {kind} {item['metadata']['name']}; scenarios are played on an empty cluster "
                    "and delete what is in it afterwards: start one for this alone"
                )

    def _clear(self) -> None:
        for kind in CLEARED:
            self.pace.until(lambda kind=kind: not self._clear_kind(kind), CLEAR_SECONDS)  # type: ignore[misc]
        self.api.answer("DELETE", self._path("ns", self.scenario.namespace))
        for item in self._listed("/api/v1/events"):
            named = item["metadata"]
            self.api.answer("DELETE", f"/api/v1/namespaces/{named['namespace']}/events/{named['name']}")

    def _clear_kind(self, kind: str) -> list[str]:
        """Delete the objects of a kind; returns those that are left."""
        for name in self._names(kind):
            self._delete(kind, name, 0)
            if kind in ("pv", "pvc"):
                # There may be no controller that removes the finalizers.
                self.api.answer(
                    "PATCH", self._path(kind, name), body={"metadata": {"finalizers": None}}, content=MERGE_PATCH
                )
        return list(self._names(kind))

    def _names(self, kind: str) -> Iterator[str]:
        return (item["metadata"]["name"] for item in self._items(kind))


def _reached(manifest: Mapping[str, Any], what: str) -> bool:
    if what == "node":
        return bool(manifest.get("spec", {}).get("nodeName"))
    if what == "selected":
        annotations = manifest.get("metadata", {}).get("annotations") or {}
        return "volume.kubernetes.io/selected-node" in annotations
    phase = {"bound": "Bound", "avail": "Available"}[what]
    return bool(manifest.get("status", {}).get("phase") == phase)
