"""The cluster whose objects live in our own log: versions are positions, and a write is an event.

Calls are commands like any other, so they are atomic, durable and audited. The executor does not call this adapter
for legs: it puts a leg's writes and their record into one transaction instead (`binding.executor`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from volsched.cluster.answers import refused
from volsched.cluster.port import (
    Capabilities,
    ExpiredError,
    Listed,
    Manifest,
    PortChange,
    UnansweredError,
    Watched,
)
from volsched.kube.kinds import key_of
from volsched.log.commands import Command, Done, RejectedError
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.fold import versioned
from volsched.log.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key
from volsched.log.reads.object_pages import page
from volsched.log.reads.tail import read_head, tail
from volsched.log.rows import VIEWS, object_state
from volsched.objects.door import bind, create, delete, unassign, update
from volsched.objects.object_write import Author, ObjectWrite
from volsched.objects.rules.admission_chain import Origin
from volsched.objects.surroundings import Subject, read_surroundings

Append = Callable[[Command], Done]
"""Carries a command out durably; raises what its decide raises."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    database: Database
    append: Append
    new_uid: Callable[[], str]
    now_text: Callable[[], str]
    """The time now, as RFC 3339."""
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

    def list(self, kind: str) -> Listed:
        with self.database.read() as connection:
            position = read_head(connection).position
            states = page(connection, NOUN_OF_KIND[kind])
        return Listed(tuple(versioned(state) for _, state in states), str(position))

    def watch(self, *, cursor: str, limit: int = 1_000) -> Watched:
        """The log's tail: every object touched since, as it is now."""
        try:
            with self.database.read() as connection:
                events = tail(connection, after=int(cursor), limit=limit)
        except ArchivedError as error:
            raise ExpiredError(str(error)) from error
        touched = {it.stream: it.position for it in events if noun_and_key(it.stream)[0] in KIND_OF_NOUN}
        changes = tuple(self._change(stream, position) for stream, position in touched.items())
        return Watched(changes, str(events[-1].position) if events else cursor)

    def create(self, kind: str, manifest: Manifest) -> Manifest:
        """What is made comes from anybody, so it is admitted as if a person had given it."""
        subject = Subject(kind, key_of(kind, manifest), manifest)
        zonal_upgrade = not self.disable_zonal_upgrade
        (around,) = read_surroundings(self.database, [subject], zonal_upgrade=zonal_upgrade)
        author = self._author(Origin.PERSON)
        self._carry_out(create(kind, manifest, author, uid=self.new_uid(), around=around))
        return self.get(kind, subject.key) or manifest

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        # Whoever changes objects through this port is a controller: people's manifests come in through `apply`.
        self._carry_out(update(kind, manifest, self._author(), status=status))
        return self.get(kind, key_of(kind, manifest)) or manifest

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        self._carry_out(delete(kind, key, self._author(), uid=uid, version=version))

    def bind_pod(self, key: str, *, uid: str, node: str) -> Manifest:
        self._carry_out(bind(key, node, self._author(), uid=uid))
        return self._pod(key)

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        self._carry_out(unassign(key, self._author(), uid=uid, reason=reason))
        return self._pod(key)

    def _pod(self, key: str) -> Manifest:
        found = self.get("Pod", key)
        if found is None:
            raise UnansweredError(f'Pod "{key}" was written and is gone since')
        return found

    def _change(self, stream: str, position: int) -> PortChange:
        noun, key = noun_and_key(stream)
        kind = KIND_OF_NOUN[noun].name
        found = self.get(kind, key)
        return PortChange(
            kind, key, found, str(position) if found is None else found["metadata"]["resourceVersion"]
        )

    def _author(self, origin: Origin = Origin.CONTROLLER) -> Author:
        return Author(self.actor, self.now_text(), origin)

    def _carry_out(self, write: ObjectWrite) -> None:
        try:
            self.append(write.command)
        except RejectedError as error:
            raise refused(error) from error
