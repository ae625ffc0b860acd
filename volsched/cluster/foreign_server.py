"""A foreign API server in memory, without faults: the truth behind the simulated cluster.

It has versions and uids of its own and knows nothing of our log. Tests write here as somebody else would: the PV
controller, a provisioner, an administrator, a second scheduler. The rules are those of our own store
(`objects.rules.lifecycle`), so the two clusters that we play differ only in where objects live and who numbers
them.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from volsched.cluster.answers import refused
from volsched.cluster.port import (
    CallRefusedError,
    Capabilities,
    ExpiredError,
    Listed,
    Manifest,
    PortChange,
    Refusal,
    Watched,
)
from volsched.kube.kinds import KINDS, key_of
from volsched.log.commands import RejectedError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, evolve
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.pod_assignment import bind_pod, unassign_pod

ABLE = Capabilities(can_unbind=True, has_data_state=True, can_unassign=True)
KUBERNETES = Capabilities(can_unbind=False, has_data_state=False, can_unassign=False)
"""What a real API server of today can do."""


@dataclass(slots=True)
class ForeignApi:
    now_text: Callable[[], str]
    """The time now, as RFC 3339."""
    capabilities: Capabilities = ABLE
    _version: int = 0
    _objects: dict[tuple[str, str], ObjectState] = field(default_factory=dict)
    _history: list[PortChange] = field(default_factory=list)
    _forgotten: int = 0
    """The last version that watches cannot go back behind any more."""

    def get(self, kind: str, key: str) -> Manifest | None:
        return _shown(self._objects.get((kind, key)))

    def list(self, kind: str) -> Listed:
        found = sorted((key, state) for (of, key), state in self._objects.items() if of == kind)
        shown = (_shown(state) for _, state in found)
        return Listed(tuple(it for it in shown if it is not None), self.head)

    def watch(self, *, cursor: str, limit: int = 1_000) -> Watched:
        if int(cursor) < self._forgotten:
            raise ExpiredError(f"the cursor {cursor} is too old, the oldest is {self._forgotten}; list again")
        found = self.changes_between(int(cursor), self._version)[:limit]
        return Watched(found, found[-1].version if found else cursor)

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        # Taken from the counter, so that a uid says when its object was made and no name ever has one twice.
        uid = f"uid-{self._version + 1}"
        return self._write(
            kind,
            key_of(kind, manifest),
            lambda state: create_object(state, KINDS[kind], manifest, uid=uid, now=self.now_text()),
        )

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        sent = dict(manifest)
        if status and not self.capabilities.has_data_state and isinstance(sent.get("status"), dict):
            # As a server does with a field that it does not know.
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

    def bind_pod(self, key: str, *, uid: str, node: str) -> Manifest:
        now = self.now_text()
        return self._write("Pod", key, lambda state: bind_pod(state, key, uid=uid, node=node, now=now))

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        if not self.capabilities.can_unassign:
            raise CallRefusedError(
                Refusal.INVALID, f'Pod "{key}": this cluster takes no pod off its node; delete it'
            )
        now = self.now_text()
        return self._write("Pod", key, lambda state: unassign_pod(state, key, uid=uid, reason=reason, now=now))

    @property
    def head(self) -> str:
        """The version of the last write of all."""
        return str(self._version)

    def changes_between(self, after: int, until: int) -> tuple[PortChange, ...]:
        """Copies, because whoever watches may keep and change what it gets."""
        found = (it for it in self._history if after < int(it.version) <= until)
        return tuple(replace(it, manifest=deepcopy(it.manifest)) for it in found)

    def forget_history(self) -> None:
        """Every cursor that is not at the head becomes too old."""
        self._history.clear()
        self._forgotten = self._version

    def _write(self, kind: str, key: str, decide: Callable[[State | None], NewEvent | None]) -> Manifest:
        held = self._objects.get((kind, key))
        try:
            event = decide(held)
        except RejectedError as error:
            raise refused(error) from error
        if event is None:
            return _shown(held) or {}
        self._version += 1
        become = evolve(held, event.type, version=0, position=self._version, at=0, data=deepcopy(dict(event.data)))
        assert isinstance(become, ObjectState)
        if become.manifest is None:
            del self._objects[kind, key]
        else:
            self._objects[kind, key] = become
        self._history.append(PortChange(kind, key, _shown(become), self.head))
        return _shown(become) or _shown(held) or {}


def _shown(state: ObjectState | None) -> dict[str, Any] | None:
    """A copy of the manifest with its version, as the server hands it out."""
    if state is None or state.manifest is None:
        return None
    # A manifest is JSON, and through JSON it is copied several times faster than by `deepcopy`. Not by orjson: a
    # server may hold numbers that are too large for it.
    manifest: dict[str, Any] = json.loads(json.dumps(state.manifest))
    manifest["metadata"]["resourceVersion"] = str(state.rv)
    return manifest
