"""A cluster as bytes: lists and watches in an API server's protocol, made from templates of real size.

It is a process of its own, so that neither its processor time nor its memory counts as the follower's. Objects
have the fields of real ones that no follower keeps: managedFields, statuses, environments, images.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from volsched.kube.kinds import KINDS
from volsched.log.events.streams import NAMED

CLAIMED_OF_100 = 15
"""Pods with a claim, of a hundred."""
PODS_PER_NODE = 20
HEAD = 1_000_000
"""The version of the first list; what it lists is older, what changes is newer."""
TICK_SECONDS = 0.01
CHUNK = 1 << 16
LOOK_SECONDS = 0.2
KIND_OF_PATH = {named.plural: named.title for named in NAMED}
_FIELDS: dict[str, Any] = {f"f:field-{index}": {"f:value": {}, "f:other": {}} for index in range(60)}
_MANAGED = [{"manager": "kubelet", "operation": "Update", "fieldsV1": _FIELDS}]
_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1_000}


def counts(pods: int) -> dict[str, int]:
    """Kind → how many there are; a claim for every second pod, and a volume for every claim."""
    return {
        "Node": pods // PODS_PER_NODE,
        "PersistentVolume": pods // 2,
        "PersistentVolumeClaim": pods // 2,
        "Pod": pods,
    }


def listed_lines(kind: str, pods: int) -> Iterator[bytes]:
    """Every object of the kind, as the first list has it."""
    for index in range(counts(pods).get(kind, 0)):
        yield line("ADDED", kind, index, version=HEAD - 1, state=b"0", plain=not has_claim(index))


def kind_of_change(number: int) -> str:
    """The kind of a change. Of a hundred: heartbeats of nodes, statuses of pods, a few claims."""
    place = number % 100
    return "Node" if place < 20 else "PersistentVolumeClaim" if place < 23 else "Pod"


def changed_line(number: int, pods: int) -> bytes:
    kind = kind_of_change(number)
    index = number * 7 % counts(pods)[kind]
    state = b"%d" % number
    return line("MODIFIED", kind, index, version=HEAD + 1 + number, state=state, plain=not has_claim(index))


def life_lines(pods: int, first: int, *, own_volumes: bool = True) -> Iterator[tuple[str, bytes]]:
    """Kind and line of all that a watch delivers while so many pods come, run and go, each at its own time.

    The claims and volumes of those that have some come and go with them, or stay and are used again.
    """
    version = HEAD + first

    def change(type_: str, kind: str, index: int, state: str, *, plain: bool = False) -> tuple[str, bytes]:
        nonlocal version
        version += 1
        template = (_PLAIN_LIFE if plain else _CLAIMED_LIFE)[state] if kind == "Pod" else _TEMPLATES[kind]
        return kind, _filled(template, type_, index, version=version, state=state.encode())

    for number in range(pods):
        index, plain = 10**7 + first + number, not has_claim(number)
        makes_volume = own_volumes and not plain
        if makes_volume:
            yield change("ADDED", "PersistentVolumeClaim", index, "Pending")
        yield change("ADDED", "Pod", index, "Pending", plain=plain)
        if makes_volume:
            yield change("MODIFIED", "PersistentVolumeClaim", index, "Chosen")
            yield change("ADDED", "PersistentVolume", index, "Available")
            yield change("MODIFIED", "PersistentVolume", index, "Bound")
            yield change("MODIFIED", "PersistentVolumeClaim", index, "Bound")
        if not plain:
            yield change("ADDED", "VolumeAttachment", index, "false")
            yield change("MODIFIED", "VolumeAttachment", index, "true")
        for state in POD_LIFE[1:]:
            yield change("MODIFIED", "Pod", index, state, plain=plain)
        yield change("DELETED", "Pod", index, "Ended", plain=plain)
        if not plain:
            yield change("DELETED", "VolumeAttachment", index, "Gone")
        if makes_volume:
            for kind in ("PersistentVolumeClaim", "PersistentVolume"):
                yield change("DELETED", kind, index, "Gone")


def has_claim(index: int) -> bool:
    return index % 100 < CLAIMED_OF_100


def line(type_: str, kind: str, index: int, *, version: int, state: bytes, plain: bool = False) -> bytes:
    template = _PLAIN_POD if kind == "Pod" and plain else _TEMPLATES[kind]
    return _filled(template, type_, index, version=version, state=state)


def _filled(template: bytes, type_: str, index: int, *, version: int, state: bytes) -> bytes:
    filled = template.replace(b"@I@", b"%d" % index).replace(b"@V@", b"%d" % version).replace(b"@S@", state)
    return filled if type_ == "ADDED" else b'{"type":"' + type_.encode() + filled[len(b'{"type":"ADDED') :]


def _template(kind: str, name: str, more: Mapping[str, Any] = {}, **parts: Any) -> bytes:
    """An encoded object, with fields in the order in which a server writes them."""
    space = {"namespace": "shop"} if KINDS[kind].namespaced else {}
    names: dict[str, Any] = {"name": name, **space, "uid": f"{kind}-{name}", "resourceVersion": "@V@"}
    names |= {
        "creationTimestamp": "2026-11-17T00:00:00Z",
        "labels": {"app": "app-@I@"},
        "annotations": _APPLIED,
        **more,
    }
    body = {"kind": kind, "apiVersion": KINDS[kind].api_version, "metadata": {**names, "managedFields": _MANAGED}}
    return json.dumps({"type": "ADDED", "object": {**body, **parts}}, separators=(",", ":")).encode() + b"\n"


def _pod(volumes: list[dict[str, Any]], state: str = "Changed") -> bytes:
    """A pod as a real server encodes it in a state of its life; `Changed` is a running one with a new status."""
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "env": [{"name": f"V{index}", "value": "x" * 30} for index in range(20)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
    spec = {"containers": [container], "volumes": volumes} | ({} if state == "Pending" else {"nodeName": "node-1"})
    deletion = {"deletionTimestamp": "2026-11-17T00:10:00Z", "deletionGracePeriodSeconds": 30}
    names = deletion if state in ("Terminating", "Ended") else {}
    return _template("Pod", "pod-@I@", names, spec=spec, status=_pod_status(state))


def _pod_status(state: str) -> dict[str, Any]:
    if state == "Pending":
        return {"phase": "Pending", "qosClass": "Burstable"}
    true = ["PodScheduled"]
    if state != "Scheduled":
        true.append("Initialized")
    if state in ("Started", "Ready", "Terminating", "Changed"):
        true.append("PodReadyToStartContainers")
    is_ready = state in ("Ready", "Terminating", "Changed")
    conditions = [{"type": it, "status": "True", "lastTransitionTime": "2026-11-17T00:00:05Z"} for it in true]
    if state != "Scheduled":
        ready = {"status": str(is_ready), "lastTransitionTime": "2026-11-17T00:00:09Z"}
        ready |= {"reason": "@S@"} if state == "Changed" else {} if is_ready else {"reason": "ContainersNotReady"}
        conditions += [{"type": it, **ready} for it in ("Ready", "ContainersReady")]
    container = {"name": "main", "ready": is_ready, "started": is_ready, "restartCount": 0, "imageID": "x" * 100}
    phase = "Running" if is_ready else "Succeeded" if state == "Ended" else "Pending"
    statuses = [] if state == "Scheduled" else [container]
    return {
        "phase": phase,
        "conditions": conditions,
        "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": statuses,
    }


_TOKEN = [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
_CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-@I@"}}]
POD_LIFE = ("Pending", "Scheduled", "Created", "Started", "Ready", "Terminating", "Ended")
_PLAIN_LIFE = {state: _pod(_TOKEN, state) for state in POD_LIFE}
_CLAIMED_LIFE = {state: _pod(_CLAIM, state) for state in POD_LIFE}
_PLAIN_POD = _pod(_TOKEN)
_TEMPLATES = {
    "Node": _template(
        "Node",
        "node-@I@",
        spec={},
        status={
            "allocatable": {"cpu": "32", "pods": "110"},
            "images": [{"names": [f"image-{index}-@S@"], "sizeBytes": index} for index in range(50)],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "@S@"}],
        },
    ),
    "PersistentVolume": _template(
        "PersistentVolume",
        "pv-@I@",
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "claimRef": {"namespace": "shop", "name": "data-@I@", "uid": "PersistentVolumeClaim-data-@I@"},
            "csi": {"driver": "csi.example.com", "volumeHandle": "h-@I@", "volumeAttributes": {"a": "b"}},
        },
        status={"phase": "Bound", "reason": "@S@"},
    ),
    "PersistentVolumeClaim": _template(
        "PersistentVolumeClaim",
        "data-@I@",
        spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "pv-@I@"},
        status={"phase": "Bound", "conditions": [{"type": "Unused", "status": "False", "reason": "@S@"}]},
    ),
    "VolumeAttachment": _template(
        "VolumeAttachment",
        "va-@I@",
        spec={"attacher": "csi.example.com", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-@I@"}},
        status={"attached": "@S@"},
    ),
    "Pod": _pod(_CLAIM),
}


class EncodedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, pods: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods = pods
        self.queues: dict[str, SimpleQueue[bytes]] = defaultdict(SimpleQueue)
        self.watches: dict[str, object] = {}
        """Kind → its last watch: an abandoned one must not take changes meant for the next."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A follower that ends cuts its connections: that is not an error, and is not logged."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def load(self, rate: int, seconds: int, first: int) -> float:
        """Sends so many changes a second from now on; returns when it began, by this machine's monotonic clock."""
        start = time.monotonic()
        threading.Thread(target=self._pace, args=(start, rate, rate * seconds, first), daemon=True).start()
        return start

    def live(self, pods: int, first: int, own_volumes: bool) -> int:
        """Sends the lives of so many pods, as fast as they are read; returns the number of changes."""
        sent = 0
        for kind, encoded in life_lines(pods, first, own_volumes=own_volumes):
            self.queues[kind].put(encoded)
            sent += 1
        return sent

    def _pace(self, start: float, rate: int, total: int, first: int) -> None:
        sent = 0
        while sent < total:
            due = min(int((time.monotonic() - start) * rate), total)
            for number in range(first + sent, first + due):
                self.queues[kind_of_change(number)].put(changed_line(number, self.pods))
            sent = due
            time.sleep(TICK_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EncodedServer

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        kind = KIND_OF_PATH.get(path.rpartition("/")[2])
        if path == "/version":
            self._answer({"major": "1", "minor": "37"})
        elif path == "/cpu":
            self._answer({"seconds": time.process_time()})
        elif kind is None:
            self._answer({"metadata": {"name": "kube-system", "uid": "encoded"}})
        elif "watch" not in query:
            self._answer({"metadata": {"resourceVersion": str(HEAD + 10**9)}, "items": []})
        elif "sendInitialEvents" in query:
            self._list(kind)
        else:
            self._watch(kind)

    def do_POST(self) -> None:
        given = {name: int(value) for name, value in parse_qsl(urlsplit(self.path).query)}
        if urlsplit(self.path).path == "/load":
            self._answer({"start": self.server.load(given["rate"], given["seconds"], given["first"])})
        else:
            self._answer({"changes": self.server.live(given["pods"], given["first"], bool(given["volumes"]))})

    def _answer(self, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _list(self, kind: str) -> None:
        self._begin()
        chunk = bytearray()
        for encoded in listed_lines(kind, self.server.pods):
            chunk += encoded
            if len(chunk) >= CHUNK:
                self._chunk(chunk)
                chunk = bytearray()
        ends = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": str(HEAD)}
        mark = {"type": "BOOKMARK", "object": {"kind": kind, "metadata": ends}}
        self._chunk(chunk + json.dumps(mark).encode() + b"\n")
        self._chunk(b"")

    def _watch(self, kind: str) -> None:
        self._begin()
        queue, this = self.server.queues[kind], object()
        self.server.watches[kind] = this
        while self.server.watches[kind] is this:
            try:
                chunk = bytearray(queue.get(timeout=LOOK_SECONDS))
            except Empty:
                continue
            while not queue.empty() and len(chunk) < CHUNK:
                chunk += queue.get()
            self._chunk(chunk)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, body: bytes | bytearray) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), bytes(body)))


def _end_with_parent() -> None:
    """Ends this process with its parent, which holds the other end of stdin as long as it lives."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with EncodedServer(int(sys.argv[1])) as encoded:
        print(encoded.server_address[1], flush=True)
        encoded.serve_forever()
