"""Requests that write, as commands for the one writer. What is allowed is said by `core.objects` alone.

A command's decide is a pure function of the object as it is under the log's lock, so a small patch is applied to
what it then finds and needs no second try. What takes longer is decided beforehand, on the object as it was read,
and under the lock only versions are compared: nobody waits for somebody else's large object. What a command found
and did is noted, for the answer.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from volsched.api.kubernetes.paths import RequestTarget
from volsched.cluster.answers import bind_pod
from volsched.kube.limits import holds_more
from volsched.kube.manifest import metadata, spec
from volsched.kube.merge_patch import merged
from volsched.kube.storage import StorageClass
from volsched.kube.workloads import Node
from volsched.log.batch import load_states
from volsched.log.commands import Command, ConflictError, Done
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State, versioned
from volsched.log.events.streams import stream_of
from volsched.log.reads.startup import load_classes, load_nodes
from volsched.log.reads.timelines import lives
from volsched.objects.rules.admission import (
    CLAIM,
    IMMORTAL_NAMESPACES,
    NAMESPACE,
    class_of_claim,
    lacks_class,
    namespace_stream,
    priority_streams,
    refuse_expansion,
    refuse_namespace,
    refuse_priority,
    with_default_class,
    with_priority,
)
from volsched.objects.rules.apply import refuse_unknown_claim
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.refusals import ForbiddenError, NotFoundError
from volsched.workloads.rules.zonal_upgrade import admission_streams, admit, asks_for_nodes

Manifest = dict[str, Any]
Decided = tuple[NewEvent | None, tuple[NewEvent, ...]]
"""The event of the object itself, if it changes, and what is written beside."""


@dataclass(frozen=True, slots=True)
class Who:
    """On whose behalf, when (RFC 3339), and why."""

    actor: str
    now: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    manifest: Manifest
    """The object as the write left it; one that is gone, as it was last."""
    gone: bool = False


MOST_VALUES = 2_000
"""That an object may hold to be worked on under the log's lock: several times those of an ordinary pod."""


class HeavyError(Exception):
    """The object is too large to be worked on under the log's lock; `prepare` the write first."""


class OutdatedError(Exception):
    """The write was prepared for what is no longer so; prepare it again."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    version: int | None
    """Of the object that was looked at; None: there was none."""
    decided: Decided


class Write:
    """A command about one object, and the answer to it."""

    def __init__(
        self,
        target: RequestTarget,
        who: Who,
        decide: Callable[[State | None], Decided],
        *,
        admit: Callable[[States], None] = lambda _: None,
        beside: tuple[str, ...] = (),
        reworks: bool = False,
    ) -> None:
        """`admit` looks at what is `beside` the object, at no cost. `reworks`: what it costs to decide grows with
        the object that is there.
        """
        self._reworks, self._admit = reworks, admit
        self._prepared: _Prepared | None = None
        self._stream = stream_of(target.resource.kind.name, target.key)
        self._decide = decide
        self._reason = who.reason
        self._found: State | None = None
        self._event: NewEvent | None = None
        self.command = Command(actor=who.actor, streams=(self._stream, *beside), decide=self._decided)

    def prepare(self, database: Database) -> None:
        """Decide on what is there now, outside the lock; raises what the rules have against it."""
        with database.read() as connection:
            states, _ = load_states(database, connection, self.command.streams)
        self._admit(states)
        state = states.get(self._stream)
        self._prepared = _Prepared(_version(state), self._decide(state))

    def _decided(self, states: States) -> Decision:
        self._found = states.get(self._stream)
        self._admit(states)
        if self._prepared is None:
            if self._reworks and isinstance(self._found, ObjectState) and _is_large(self._found):
                raise HeavyError(self._stream)
            self._event, others = self._decide(self._found)
        elif self._prepared.version != _version(self._found):
            raise OutdatedError(self._stream)
        else:
            self._event, others = self._prepared.decided
        if self._event is not None and self._reason is not None:
            self._event = replace(self._event, data={**self._event.data, "reason": self._reason})
        return Decision(events=() if self._event is None else (self._event, *others))

    def written(self, done: Done) -> Written:
        """After the commit. The object's event is the command's first."""
        return self._answer(done.position - done.events + 1)

    def tried(self, database: Database) -> Written:
        """What it would come to; nothing is written."""
        with database.read() as connection:
            states, _ = load_states(database, connection, self.command.streams)
        self._reworks = False
        self._decided(states)
        return self._answer(None)

    def _answer(self, position: int | None) -> Written:
        living = self._found if isinstance(self._found, ObjectState) else None
        before = living.manifest if living is not None else None
        if self._event is None:
            assert living is not None
            return Written(versioned(living))
        gone = self._event.type.endswith("Deleted")
        after = before if gone else merged(before or {}, self._event.data["patch"])
        rv = position if position is not None else living.rv if before is not None and living is not None else None
        told = {**metadata(after or {}), **({} if rv is None else {"resourceVersion": str(rv)})}
        if gone:
            # It may be this very write that took the last of them off.
            told.pop("finalizers", None)
        return Written({**(after or {}), "metadata": told}, gone)


def _version(state: State | None) -> int | None:
    gone = state is None or (isinstance(state, ObjectState) and state.manifest is None)
    return None if state is None or gone else state.version


def _is_large(state: ObjectState) -> bool:
    return holds_more(state.manifest, MOST_VALUES)


def creating(target: RequestTarget, manifest: Manifest, who: Who, *, uid: str, seen: "Seen") -> Write:
    kind = target.resource.kind
    beside = (*admission_streams(kind.name, target.key, uid), *priority_streams(kind.name, manifest))
    if target.namespace is not None:
        beside = (*beside, namespace_stream(target.namespace))

    surroundings: dict[str, State] = {}

    def check(states: States) -> None:
        if target.namespace is not None:
            refuse_namespace(target.namespace, states)
        refuse_priority(kind.name, manifest, states)
        surroundings.update({it: states[it] for it in beside if it in states})

    def decide(state: State | None) -> Decided:
        if not seen.claim_known:
            refuse_unknown_claim(kind, manifest)
        given = with_default_class(manifest, seen.classes) if seen.classes else manifest
        made = create_object(state, kind, given, uid=uid, now=who.now)
        event = with_priority(made, kind.name, manifest, surroundings)
        if seen.nodes is None:
            return event, ()
        _, (event, *notices) = admit(event, seen.nodes, now=who.now)
        return event, tuple(notices)

    return Write(target, who, decide, admit=check, beside=beside)


@dataclass(frozen=True, slots=True)
class Seen:
    """What has to be looked up before an object is made."""

    nodes: Collection[Node] | None
    """Those that a volume's zone labels may mean; None: nothing is made of them."""
    claim_known: bool
    classes: Collection[StorageClass] = ()
    """Among which a claim that names none finds the default."""


NOTHING_TO_SEE = Seen(None, claim_known=True)


def asks_store(target: RequestTarget, manifest: Manifest, *, zonal_upgrade: bool) -> bool:
    """Must anything be looked up before the object is made? Mostly not, and then nobody need wait for a thread."""
    kind = target.resource.kind.name
    return (
        lacks_class(kind, manifest)
        or bool(_claim_uid(kind, manifest))
        or (zonal_upgrade and asks_for_nodes(kind, manifest))
    )


def _claim_uid(kind: str, manifest: Manifest) -> Any:
    ref = spec(manifest).get("claimRef") if kind == "PersistentVolume" else None
    return ref.get("uid") if isinstance(ref, dict) else None


def look_up(database: Database, target: RequestTarget, manifest: Manifest, *, zonal_upgrade: bool) -> Seen:
    kind = target.resource.kind.name
    asks = zonal_upgrade and asks_for_nodes(kind, manifest)
    uid = _claim_uid(kind, manifest)
    with database.read() as connection:
        known = True
        if uid:
            # Lived once is enough: a provisioner whose claim was deleted meanwhile must still be able to save its
            # volume, or nobody would ever delete the storage behind it.
            ref = spec(manifest)["claimRef"]
            claim = stream_of("PersistentVolumeClaim", f"{ref.get('namespace')}/{ref.get('name')}")
            known = any(life.uid == uid for life in lives(connection, claim))
        classes = load_classes(connection) if lacks_class(kind, manifest) else ()
        return Seen(load_nodes(connection) if asks else None, known, classes)


def updating(
    target: RequestTarget, manifest: Manifest, who: Who, *, status: bool, storage_class: Manifest | None = None
) -> Write:
    return _changing(target, lambda _: manifest, who, status=status, storage_class=storage_class, same_uid=True)


def patching(
    target: RequestTarget,
    change: Callable[[Manifest], Manifest],
    who: Who,
    *,
    status: bool,
    storage_class: Manifest | None = None,
) -> Write:
    """`change` makes the object that is wanted of the one that is there, shown with its version."""
    return _changing(target, change, who, status=status, storage_class=storage_class, same_uid=False)


def _changing(
    target: RequestTarget,
    change: Callable[[Manifest], Manifest],
    who: Who,
    *,
    status: bool,
    storage_class: Manifest | None,
    same_uid: bool,
) -> Write:
    kind = target.resource.kind

    def decide(state: State | None) -> Decided:
        if not isinstance(state, ObjectState) or state.manifest is None:
            raise NotFoundError(f'{kind.name} "{target.key}" not found')
        event = update_object(state, kind, change(versioned(state)), status=status, same_uid=same_uid)
        if kind.name == CLAIM and not status and event is not None:
            refuse_expansion(state, event.data.get("patch", {}), storage_class)
        return event, ()

    return Write(target, who, decide, reworks=True)


def class_of(database: Database, target: RequestTarget) -> Manifest | None:
    """The class of a claim that is to be changed: whether it may grow is said there."""
    with database.read() as connection:
        states, _ = load_states(database, connection, [stream_of(CLAIM, target.key)])
        claim = next((it.manifest for it in states.values() if isinstance(it, ObjectState)), None)
        if not claim:
            return None
        stream = stream_of("StorageClass", class_of_claim(claim))
        found, _ = load_states(database, connection, [stream])
        state = found.get(stream)
        return dict(state.manifest) if isinstance(state, ObjectState) and state.manifest else None


def deleting(
    target: RequestTarget,
    who: Who,
    *,
    uid: str | None = None,
    version: str | None = None,
    grace: int | None = None,
) -> Write:
    kind, key = target.resource.kind, target.key

    def decide(state: State | None) -> Decided:
        if kind.name == NAMESPACE and target.name in IMMORTAL_NAMESPACES:
            raise ForbiddenError("this namespace may not be deleted")
        return delete_object(state, kind, key, now=who.now, uid=uid, rv=version, grace=grace), ()

    return Write(target, who, decide)


def binding(
    target: RequestTarget, node: str, who: Who, *, uid: str | None, version: str | None, notes: Mapping[str, str]
) -> Write:
    """Assign a pod; without a uid, whichever pod has the name."""
    key = target.key

    def decide(state: State | None) -> Decided:
        if not isinstance(state, ObjectState) or state.manifest is None:
            raise NotFoundError(f'Pod "{key}" not found')
        own = metadata(state.manifest).get("uid", "")
        for field, wanted, have in (("uid", uid, own), ("resourceVersion", version, str(state.rv))):
            if wanted and wanted != have:
                message = f'Pod "{key}" has {field} {have}, not {wanted}'
                raise ConflictError(message, field=field, wanted=wanted, have=have)
        return bind_pod(state, key, uid=own, node=node, now=who.now, notes=notes), ()

    return Write(target, who, decide)
