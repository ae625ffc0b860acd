"""A foreign API server in memory, without faults: the objects behind the simulated cluster.

It has its own versions and uids and is independent of our log. Tests write here as another writer would: the PV
controller, a provisioner, an administrator, a second scheduler. The rules are those of our own store
(`objects.rules.lifecycle`), so the local and the simulated cluster differ only in where objects are stored and
versioned.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.cluster.port import (
    NOTHING_KNOWN,
    CallRefusedError,
    Capabilities,
    ClusterIdentity,
    Cursors,
    ExpiredError,
    KnownVersions,
    ListPage,
    Manifest,
    Permission,
    PortChange,
    Refusal,
    Watched,
    existing,
    refused,
    with_condition,
    without_gate,
    without_version,
)
from volsched.kube.kinds import KINDS, key_of
from volsched.kube.manifest import metadata
from volsched.kube.meta import FENCE
from volsched.kube.patches import merged
from volsched.log.commands import RejectedError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, evolve
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.pod_assignment import bind_pod, unassign_pod

ABLE = Capabilities(can_unbind=True, has_data_state=True, can_unassign=True)


@dataclass(slots=True)
class ForeignApi:
    now_text: Callable[[], str]
    """The present time, as RFC 3339."""
    capabilities: Capabilities = ABLE
    uid: str = "kube-system-1"
    """Identifies the cluster; a replaced cluster has another uid."""
    page_size: int = 500
    forbidden: set[Permission] = field(default_factory=set)
    """Permissions that we do not have."""
    events: list[Manifest] = field(default_factory=list)
    """The events that were created."""
    _version: int = 0
    _objects: dict[tuple[str, str], ObjectState] = field(default_factory=dict)
    _history: list[PortChange] = field(default_factory=list)
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Kind → the oldest version from which it can be watched."""

    def get(self, kind: str, key: str) -> Manifest | None:
        return _manifest_of(self._objects.get((kind, key)))

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        may = {permission: permission not in self.forbidden for permission in permissions}
        return ClusterIdentity(uid=self.uid, version="1.37", url="simulated", may=may)

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        self._permit("list", kind)
        states = sorted((key, state) for (of, key), state in self._objects.items() if of == kind)
        shown = {key: manifest for key, state in states if (manifest := _manifest_of(state)) is not None}
        unchanged = tuple(
            key
            for key, it in shown.items()
            if known.get(key) == (it["metadata"]["uid"], it["metadata"]["resourceVersion"])
        )
        objects = [manifest for key, manifest in shown.items() if key not in set(unchanged)]
        # All pages show the state at one moment; the watch reports writes between two of them.
        cursor, size = self.head, self.page_size
        for start in range(0, max(len(objects), 1), size):
            is_last = start + size >= len(objects)
            page = tuple(objects[start : start + size])
            yield ListPage(page, cursor, unchanged=unchanged) if is_last else ListPage(page)

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        known = {kind: int(cursor) for kind, cursor in cursors.items()}
        for kind, version in known.items():
            self._permit("watch", kind)
            if version < self._forgotten.get(kind, 0):
                oldest = self._forgotten[kind]
                raise ExpiredError(
                    kind, f"{kind}: the cursor {version} is too old, the oldest is {oldest}; list again"
                )
        news = [change for change in self._history if int(change.version) > known.get(change.kind, self._version)]
        # This server has one version counter for all kinds, and reports changes in its order.
        reached = int(news[limit - 1].version) if len(news) > limit else self._version
        reached = reached if news else 0
        changes = tuple(_copy_of(change) for change in news[:limit])
        return Watched(changes, {kind: str(max(version, reached)) for kind, version in known.items()})

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        # Taken from the counter, so that a uid shows when its object was created, and is never used twice.
        uid = f"uid-{self._version + 1}"
        return self._write(
            kind,
            key_of(kind, manifest),
            lambda state: create_object(state, KINDS[kind], manifest, uid=uid, now=self.now_text()),
        )

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        if not (manifest.get("metadata") or {}).get("resourceVersion"):
            raise without_version(kind, key_of(kind, manifest))
        self._permit("update", kind, "status" if status else "")
        return self._replace(kind, manifest, status)

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        self._permit("patch", kind, "status" if status else "")
        current = existing(self, kind, key)
        version_field = {"metadata": {"resourceVersion": version}}
        return self._replace(kind, merged(merged(current, patch), version_field), status)

    def _replace(self, kind: str, manifest: Manifest, status: bool) -> Manifest:
        sent = dict(manifest)
        if status and not self.capabilities.has_data_state and isinstance(sent.get("status"), dict):
            # A real server drops fields that it does not know.
            sent["status"] = {name: value for name, value in sent["status"].items() if name != "dataState"}
        return self._write(
            kind,
            key_of(kind, manifest),
            lambda state: update_object(
                state, KINDS[kind], sent, status=status, by_volume_controller=self.capabilities.can_unbind
            ),
        )

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._write(
            kind,
            key,
            lambda state: delete_object(state, KINDS[kind], key, now=self.now_text(), uid=uid, rv=version),
        )

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        self._permit("patch", kind, "status" if kind == "Pod" else "")
        current = existing(self, kind, key)
        change = {"metadata": {"annotations": {FENCE: mark}, "resourceVersion": version}}
        return self._replace(kind, merged(current, change), status=False)

    def open_gate(self, key: str, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
        self._permit("patch", "Pod")
        current = existing(self, "Pod", key)
        version = {"metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]}}
        return self._replace("Pod", merged(without_gate(current, annotations), version), status=False)

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        self._permit("patch", "Pod", "status")
        pod = existing(self, "Pod", key)
        if pod["metadata"]["uid"] != uid:
            raise CallRefusedError(Refusal.INVALID, f'Pod "{key}": metadata.uid: field is immutable')
        self._replace("Pod", with_condition(pod, condition), status=True)

    def create_event(self, event: Manifest) -> None:
        self._permit("create", "Event")
        self.events.append(event)

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        self._permit("create", "Pod", "binding")
        stored = self._objects.get(("Pod", key))
        # Preconditions are checked first, and the error does not tell which of the two failed.
        if stored is not None and (metadata(stored.manifest or {}).get("uid"), str(stored.rv)) != (uid, version):
            raise CallRefusedError(
                Refusal.CONFLICT, f'Pod "{key}" is no longer the pod {uid} at version {version}'
            )
        now = self.now_text()
        self._write("Pod", key, lambda state: bind_pod(state, key, uid=uid, node=node, now=now, notes=annotations))

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        if not self.capabilities.can_unassign:
            raise CallRefusedError(
                Refusal.INVALID, f'Pod "{key}": this cluster cannot unassign a pod from its node; delete it'
            )
        now = self.now_text()
        return self._write("Pod", key, lambda state: unassign_pod(state, key, uid=uid, reason=reason, now=now))

    @property
    def head(self) -> str:
        """The version of the last write to any object."""
        return str(self._version)

    def changes_between(self, after: int, until: int) -> tuple[PortChange, ...]:
        """Copies of the changes, because a watcher may keep and modify them."""
        return tuple(_copy_of(change) for change in self._history if after < int(change.version) <= until)

    def forget_history(self, *kinds: str) -> None:
        """Expire all cursors of these kinds, or of all kinds, that are not at the head."""
        for kind in kinds or NOUN_OF_KIND:
            self._forgotten[kind] = self._version
        self._history = [change for change in self._history if kinds and change.kind not in kinds]

    def _permit(self, verb: str, kind: str, subresource: str = "") -> None:
        permission = Permission(verb, kind, subresource)
        if permission in self.forbidden:
            raise CallRefusedError(Refusal.FORBIDDEN, f"we may not {permission}; ask an administrator for it")

    def _write(self, kind: str, key: str, decide: Callable[[State | None], NewEvent | None]) -> Manifest:
        before = self._objects.get((kind, key))
        try:
            event = decide(before)
        except RejectedError as error:
            raise refused(error) from error
        if event is None:
            return _manifest_of(before) or {}
        self._version += 1
        after = evolve(
            before, event.type, version=0, position=self._version, at=0, data=deepcopy(dict(event.data))
        )
        assert isinstance(after, ObjectState)
        if after.manifest is None:
            del self._objects[kind, key]
        else:
            self._objects[kind, key] = after
        self._history.append(PortChange(kind, key, _manifest_of(after), self.head))
        return _manifest_of(after) or _manifest_of(before) or {}


def _copy_of(change: PortChange) -> PortChange:
    return replace(change, manifest=deepcopy(change.manifest))


def _manifest_of(state: ObjectState | None) -> dict[str, Any] | None:
    """A copy of the manifest with its version, as the server returns it."""
    if state is None or state.manifest is None:
        return None
    # Copying through JSON is several times faster than `deepcopy`. Not through orjson: a server may hold numbers
    # that are too large for it.
    manifest: dict[str, Any] = json.loads(json.dumps(state.manifest))
    manifest["metadata"]["resourceVersion"] = str(state.rv)
    return manifest
