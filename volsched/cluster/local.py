"""The cluster whose objects are in our own log: versions are positions, and a write is an event.

Calls are commands like any other, so they are atomic, durable and audited. The executor does not call this adapter
for legs: it puts a leg's writes and their record into one transaction instead (`binding.executor`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    UnansweredError,
    Watched,
    existing,
    refused,
    with_condition,
    without_gate,
    without_version,
)
from volsched.kube.kinds import key_of
from volsched.kube.meta import FENCE
from volsched.kube.patches import merged
from volsched.log.commands import Command, Done, RejectedError
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.fold import versioned
from volsched.log.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key
from volsched.log.reads.lookups import page
from volsched.log.reads.tail import read_head, tail
from volsched.log.row_states import object_state
from volsched.log.rows import VIEWS
from volsched.objects import door
from volsched.objects.object_write import Author, ObjectWrite
from volsched.objects.rules.admission import Origin
from volsched.objects.surroundings import Subject, read_surroundings

Append = Callable[[Command], Done]
"""Executes a command durably; raises the errors of its `decide`."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    database: Database
    append: Append
    new_uid: Callable[[], str]
    now_text: Callable[[], str]
    """The present time, as RFC 3339."""
    actor: str = "cluster"
    disable_zonal_upgrade: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(can_unbind=True, has_data_state=True, can_unassign=True, is_own_log=True)

    def get(self, kind: str, key: str) -> Manifest | None:
        table, _ = VIEWS[NOUN_OF_KIND[kind]]
        with self.database.read() as connection:
            rows = self.database.dialect.fetch(connection, table, "key", (key,))
        return versioned(object_state(rows[0])) if rows else None

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        """The identity of our own store: a process that can open it has every permission."""
        may = dict.fromkeys(permissions, True)
        return ClusterIdentity(uid=None, version=None, url=self.database.place, may=may)

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:  # noqa: ARG002 - all is near
        with self.database.read() as connection:
            position = read_head(connection).position
            states = page(connection, NOUN_OF_KIND[kind])
        yield ListPage(tuple(versioned(state) for _, state in states), str(position))

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        """Changes from the log's tail: every object touched since the cursors, in its present state. All kinds
        have log positions as versions."""
        known = {kind: int(cursor) for kind, cursor in cursors.items()}
        after = min(known.values(), default=0)
        try:
            with self.database.read() as connection:
                events = tail(connection, after=after, limit=limit)
        except ArchivedError as error:
            oldest = next(kind for kind, position in known.items() if position == after)
            raise ExpiredError(oldest, str(error)) from error
        touched = {it.stream: it.position for it in events if it.position > _known_position(it.stream, known)}
        changes = tuple(self._change(stream, position) for stream, position in touched.items())
        reached = events[-1].position if events else 0
        return Watched(changes, {kind: str(max(position, reached)) for kind, position in known.items()})

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        """Create an object. Any component may do so, so it is checked like a person's manifest."""
        subject = Subject(kind, key_of(kind, manifest), manifest)
        zonal_upgrade = not self.disable_zonal_upgrade
        (context,) = read_surroundings(self.database, [subject], zonal_upgrade=zonal_upgrade)
        author = self._author(Origin.PERSON)
        self._carry_out(door.create(kind, manifest, author, uid=self.new_uid(), around=context))
        return self.get(kind, subject.key) or manifest

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        if not (manifest.get("metadata") or {}).get("resourceVersion"):
            raise without_version(kind, key_of(kind, manifest))
        # Only controllers change objects through this port; people use `apply`.
        self._carry_out(door.update(kind, manifest, self._author(), status=status))
        return self.get(kind, key_of(kind, manifest)) or manifest

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        current = existing(self, kind, key)
        # Conditional on the writer's version: if the object has or gets another one, the update is refused.
        version_field = {"metadata": {"resourceVersion": version}}
        return self.update(kind, merged(merged(current, patch), version_field), status=status)

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._carry_out(door.delete(kind, key, self._author(), uid=uid, version=version))

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        return self.patch(kind, key, {"metadata": {"annotations": {FENCE: mark}}}, version=version)

    def open_gate(
        self,
        key: str,  # noqa: ARG002 - the port's
        pod: Manifest,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> Manifest:
        return self.update("Pod", without_gate(pod, annotations))

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        pod = self.get("Pod", key)
        if pod is None or pod["metadata"]["uid"] != uid:
            raise CallRefusedError(Refusal.INVALID, f'Pod "{key}" with uid {uid} not found')
        self.update("Pod", with_condition(pod, condition), status=True)

    def create_event(self, event: Manifest) -> None:
        """Nothing to do: our own log already has its notices (`objects.rules.object_events`)."""

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        author = self._author()
        self._carry_out(
            door.bind(key, node, author, expected_uid=uid, expected_version=version, notes=annotations)
        )

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        self._carry_out(door.unassign(key, self._author(), uid=uid, reason=reason))
        return self._pod(key)

    def _pod(self, key: str) -> Manifest:
        pod = self.get("Pod", key)
        if pod is None:
            raise UnansweredError(f'Pod "{key}" was written and has since been deleted')
        return pod

    def _change(self, stream: str, position: int) -> PortChange:
        noun, key = noun_and_key(stream)
        kind = KIND_OF_NOUN[noun].name
        manifest = self.get(kind, key)
        return PortChange(
            kind, key, manifest, str(position) if manifest is None else manifest["metadata"]["resourceVersion"]
        )

    def _author(self, origin: Origin = Origin.CONTROLLER) -> Author:
        return Author(self.actor, self.now_text(), origin)

    def _carry_out(self, write: ObjectWrite) -> None:
        try:
            self.append(write.command)
        except RejectedError as error:
            raise refused(error) from error


def _known_position(stream: str, known: Mapping[str, int]) -> float:
    """The position up to which the stream's kind is known; infinity for a kind that is not watched."""
    noun, _ = noun_and_key(stream)
    return known.get(KIND_OF_NOUN[noun].name, math.inf) if noun in KIND_OF_NOUN else math.inf
