"""The cluster whose objects live in our own log: versions are positions, and a write is an event.

Calls are commands like any other, so they are atomic, durable and audited. The executor does not call this adapter
for legs: it puts a leg's writes and their record into one transaction instead (`engine.executor`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import select

from volsched.cluster.answers import bind_pod, key_of, refused, unassign_pod
from volsched.cluster.port import (
    Capabilities,
    ExpiredError,
    Listed,
    Manifest,
    PortChange,
    UnansweredError,
    Watched,
)
from volsched.kube.kinds import KINDS
from volsched.kube.workloads import Node
from volsched.log.commands import Command, Done, RejectedError
from volsched.log.database import Database
from volsched.log.errors import ArchivedError
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import State, versioned
from volsched.log.events.streams import KIND_OF_NOUN, NOUN_OF_KIND, noun_and_key, stream_of
from volsched.log.reads.startup import load_nodes
from volsched.log.reads.tail import read_head, tail
from volsched.log.rows import VIEWS, object_state
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.workloads.rules.zonal_upgrade import admission_streams, admit, asks_for_nodes

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
        return Capabilities(can_unbind=True, has_data_state=True, can_unassign=True)

    def get(self, kind: str, key: str) -> Manifest | None:
        table, _ = VIEWS[NOUN_OF_KIND[kind]]
        with self.database.read() as connection:
            rows = self.database.dialect.fetch(connection, table, "key", (key,))
        return versioned(object_state(rows[0])) if rows else None

    def list(self, kind: str) -> Listed:
        table, _ = VIEWS[NOUN_OF_KIND[kind]]
        with self.database.read() as connection:
            position = read_head(connection).position
            rows = connection.execute(select(table).order_by(table.c.key)).mappings().all()
        return Listed(tuple(versioned(object_state(dict(row))) for row in rows), str(position))

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
        uid, now = self.new_uid(), self.now_text()
        key = key_of(kind, manifest)
        stream = stream_of(kind, key)
        nodes: list[Node] = []
        upgrades = not self.disable_zonal_upgrade and asks_for_nodes(kind, manifest)
        beside = admission_streams(kind, key, uid) if upgrades else ()
        if upgrades:
            with self.database.read() as connection:
                nodes = load_nodes(connection)

        def decide(states: States) -> Decision:
            event = create_object(states.get(stream), KINDS[kind], manifest, uid=uid, now=now)
            return Decision(events=admit(event, nodes, now=now)[1] if upgrades else (event,))

        self._carry_out(Command(actor=self.actor, streams=(stream, *beside), decide=decide))
        return self.get(kind, key) or manifest

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        # Whoever comes through this port is a controller: people's manifests come in through `apply`.
        return self._write(
            kind,
            manifest,
            lambda state: update_object(state, KINDS[kind], manifest, status=status, by_volume_controller=True),
        )

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None:
        now = self.now_text()
        self._append(
            stream_of(kind, key),
            lambda state: delete_object(state, KINDS[kind], key, now=now, uid=uid, rv=version),
        )

    def bind_pod(self, key: str, *, uid: str, node: str) -> Manifest:
        now = self.now_text()
        self._append(stream_of("Pod", key), lambda state: bind_pod(state, key, uid=uid, node=node, now=now))
        return self._pod(key)

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        now = self.now_text()
        self._append(
            stream_of("Pod", key), lambda state: unassign_pod(state, key, uid=uid, reason=reason, now=now)
        )
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

    def _write(self, kind: str, manifest: Manifest, decide: Callable[[State | None], NewEvent | None]) -> Manifest:
        key = key_of(kind, manifest)
        self._append(stream_of(kind, key), decide)
        return self.get(kind, key) or manifest

    def _append(self, stream: str, decide: Callable[[State | None], NewEvent | None]) -> None:
        def decided(states: States) -> Decision:
            event = decide(states.get(stream))
            return NOTHING if event is None else Decision(events=(event,))

        self._carry_out(Command(actor=self.actor, streams=(stream,), decide=decided))

    def _carry_out(self, command: Command) -> None:
        try:
            self.append(command)
        except RejectedError as error:
            raise refused(error) from error
