"""A real API server as a cluster: translates calls of the port to requests, and responses to its answers."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version as installed
from pathlib import Path
from random import Random
from time import time
from typing import Any

from volsched.cluster.kubernetes import requests
from volsched.cluster.kubernetes.access_files import find_access
from volsched.cluster.kubernetes.backoff import TokenBucket
from volsched.cluster.kubernetes.credentials import CredentialSource
from volsched.cluster.kubernetes.kubeconfig import ClusterAccess
from volsched.cluster.kubernetes.lists import Lists
from volsched.cluster.kubernetes.metadata_proof import ObjectVersion
from volsched.cluster.kubernetes.responses import UnservedError
from volsched.cluster.kubernetes.streams import QUEUE, StreamHealth, WatchStream
from volsched.cluster.kubernetes.transport import SILENT_SECONDS, ApiAnswer, Transport
from volsched.cluster.port import (
    KUBERNETES,
    NOTHING_KNOWN,
    CallRefusedError,
    Capabilities,
    ClusterError,
    ClusterIdentity,
    Cursors,
    KnownVersions,
    ListPage,
    Manifest,
    Permission,
    PortChange,
    Refusal,
    Watched,
    without_version,
)
from volsched.cluster.projection import Projection, everything
from volsched.kube.kinds import KINDS, key_of

OBSERVE_PER_SECOND, OBSERVE_BURST = 5, 20
"""Our own rate limit of an observer; only its start and lists after a gap need more than one a minute."""
OLDEST_MINOR = 29
SKEW_SECONDS = 60
"""How far our clock and the server's may differ without a warning."""


class KubernetesCluster:
    """`kinds` are those that can be watched; their `streams` are read by threads of the process (`reading`)."""

    def __init__(
        self,
        transport: Transport,
        *,
        kinds: Sequence[str] = tuple(KINDS),
        random: Random | None = None,
        queue: int = QUEUE,
        project: Projection = everything,
        capabilities: Capabilities = KUBERNETES,
    ) -> None:
        self._transport, self.lists = transport, Lists(transport, project=project)
        self._capabilities = capabilities
        chance = random or Random()
        self.streams = {
            kind: WatchStream(kind, self.lists, random=Random(chance.random()), capacity=queue) for kind in kinds
        }
        self._first = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def access(self) -> ClusterAccess:
        return self._transport.access

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        url = self.access.server
        try:
            answer = self._transport.call(requests.plain_get(requests.VERSION_PATH, "ask for the version"))
        except ClusterError as error:
            return ClusterIdentity(uid=None, version=None, url=url, reachable=False, trouble=str(error))
        version = f"{_digits(answer.body.get('major'))}.{_digits(answer.body.get('minor'))}"
        warnings = tuple(_warnings(self.access, answer, version))
        try:
            return ClusterIdentity(
                uid=self._uid(),
                version=version,
                url=url,
                may={permission: self._is_allowed(permission) for permission in permissions},
                unserved=self._unserved_kinds({it.kind for it in permissions if it.kind in KINDS}),
                warnings=warnings,
            )
        except ClusterError as error:
            return ClusterIdentity(uid=None, version=version, url=url, trouble=str(error), warnings=warnings)

    def get(self, kind: str, key: str) -> Manifest | None:
        try:
            return self._object(requests.get(kind, key))
        except UnservedError:
            raise
        except CallRefusedError as error:
            if error.refusal is Refusal.NOT_FOUND:
                return None
            raise

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        return self.lists.pages(kind, known)

    def versions(self, kind: str) -> Iterator[tuple[tuple[ObjectVersion, ...], str | None]]:
        """Key, uid and version of every object of the kind, in pages: for the proof of equality."""
        return self.lists.versions(kind)

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        """Drains the streams. Each call starts with another kind, so that a busy one does not starve others."""
        kinds = list(cursors)
        self._first = (self._first + 1) % max(len(kinds), 1)
        changes: list[PortChange] = []
        reached = dict(cursors)
        for kind in (*kinds[self._first :], *kinds[: self._first]):
            try:
                taken, reached[kind] = self.streams[kind].take(cursors[kind], limit - len(changes))
            except ClusterError:
                # Raised by the next call: this one would lose the changes taken so far.
                if changes:
                    continue
                raise
            changes += taken
        return Watched(tuple(changes), reached)

    def wake_on_news(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a watch has a change that a binding may wait for; the next step reads the others."""
        for stream in self.streams.values():
            stream.wake = wake

    def health(self) -> Mapping[str, StreamHealth]:
        return {kind: stream.health() for kind, stream in self.streams.items()}

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        return self._object(requests.create(kind, key_of(kind, manifest), manifest))

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        key = key_of(kind, manifest)
        if not (manifest.get("metadata") or {}).get("resourceVersion"):
            raise without_version(kind, key)
        return self._object(requests.update(kind, key, manifest, status=status))

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        return self._object(requests.patch(kind, key, patch, version=version, status=status))

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._transport.call(requests.delete(kind, key, uid=uid, version=version))

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        return self._object(requests.fence(kind, key, version=version, mark=mark))

    def open_gate(self, key: str, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
        return self._object(requests.open_gate(key, pod, annotations=annotations))

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        self._transport.call(requests.set_condition(key, condition, uid=uid))

    def create_event(self, event: Manifest) -> None:
        self._transport.call(requests.create_event(event))

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """The server returns a Status, not the pod."""
        request = requests.bind(key, uid=uid, version=version, node=node, annotations=annotations)
        self._transport.call(request)

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:  # noqa: ARG002 - the port's
        raise CallRefusedError(
            Refusal.INVALID,
            f'Pod "{key}": Kubernetes cannot unassign a pod from its node; delete it instead',
        )

    def lease(self, key: str) -> Manifest | None:
        try:
            return self._object(requests.get_lease(key))
        except CallRefusedError as error:
            if error.refusal is Refusal.NOT_FOUND:
                return None
            raise

    def create_lease(self, manifest: Manifest) -> Manifest:
        return self._object(requests.create_lease(manifest))

    def update_lease(self, manifest: Manifest) -> Manifest:
        return self._object(requests.update_lease(manifest))

    def close(self) -> None:
        self._transport.close()

    def _object(self, request: requests.ApiRequest) -> Manifest:
        body: dict[str, Any] = self._transport.call(request).body
        return body

    def _uid(self) -> str | None:
        """None where we may not read the namespace."""
        try:
            answer = self._transport.call(requests.plain_get(requests.IDENTITY_PATH, "ask which cluster it is"))
        except CallRefusedError:
            return None
        return str(answer.body["metadata"]["uid"])

    def _is_allowed(self, permission: Permission) -> bool:
        answer = self._transport.call(requests.access_review(permission))
        return bool((answer.body.get("status") or {}).get("allowed"))

    def _unserved_kinds(self, kinds: set[str]) -> tuple[str, ...]:
        served: dict[str, set[str]] = {}
        for kind in kinds:
            request = requests.discovery(kind)
            if request.path not in served:
                served[request.path] = self._served_at(request)
        return tuple(sorted(kind for kind in kinds if kind not in served[requests.group_version_path(kind)]))

    def _served_at(self, request: requests.ApiRequest) -> set[str]:
        try:
            resources = self._transport.call(request).body.get("resources") or ()
        except CallRefusedError:
            return set()
        return {resource["kind"] for resource in resources if "/" not in resource["name"]}


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    mode: str = "observe",
    kinds: Sequence[str] = tuple(KINDS),
    environment: Mapping[str, str] = os.environ,
    project: Projection = everything,
    bucket: TokenBucket | None = None,
    capabilities: Capabilities = KUBERNETES,
) -> KubernetesCluster:
    """The cluster that kubectl would use; raises KubeconfigError. Nothing is sent yet."""
    access = find_access(kubeconfig, context, environment=environment)
    transport = attach(access, mode=mode, bucket=bucket)
    return KubernetesCluster(transport, kinds=kinds, project=project, capabilities=capabilities)


def attach(
    access: ClusterAccess,
    *,
    mode: str = "observe",
    bucket: TokenBucket | None = None,
    silent_seconds: float = SILENT_SECONDS,
) -> Transport:
    return Transport(
        access,
        CredentialSource(access, time),
        user_agent=f"volsched/{installed('volsched')} ({mode})",
        bucket=bucket or TokenBucket(OBSERVE_PER_SECOND, OBSERVE_BURST),
        silent_seconds=silent_seconds,
    )


def _warnings(access: ClusterAccess, answer: ApiAnswer, version: str) -> Iterator[str]:
    if access.insecure:
        yield (
            f'context "{access.context}" has insecure-skip-tls-verify: the server is not verified; give it '
            "certificate-authority-data instead"
        )
    major, _, minor = version.partition(".")
    if major == "1" and minor.isdecimal() and int(minor) < OLDEST_MINOR:
        yield f"the server is {version}, older than 1.{OLDEST_MINOR}, the oldest that was tested; upgrade it"
    skew = clock_skew(answer.date, time())
    if skew is not None and abs(skew) > SKEW_SECONDS:
        ahead = "behind" if skew > 0 else "ahead of"
        yield f"this machine's clock is {abs(skew):.0f} s {ahead} the server's; set both by NTP, ages are wrong"


def clock_skew(date: str, now: float) -> float | None:
    """Seconds by which the server's clock is ahead of ours; None where its answer has no date."""
    try:
        server_time: datetime = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        return None
    return server_time.timestamp() - now


def _digits(text: object) -> str:
    """The number in a version: `37+` of a provider is 37."""
    return "".join(letter for letter in str(text or "") if letter.isdecimal())
