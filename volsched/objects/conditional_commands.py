"""Commands that change objects, each conditional on what its writer has seen.

Whoever acts on the world it has read uses these: a write that comes too late is refused (`ObjectError` as the
outcome), and the writer looks again when the log tells it what happened instead.
"""

from collections.abc import Callable, Mapping

from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, metadata
from volsched.log.commands import Command, Precondition
from volsched.log.database import Database
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import stream_of
from volsched.log.reads.startup import load_classes
from volsched.objects.rules.admission import (
    CLAIM,
    lacks_class,
    priority_streams,
    refuse_priority,
    with_default_class,
    with_priority,
)
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.runtime.clock import rfc3339


def creating(kind: str, manifest: Manifest, *, uid: str, actor: str, now: int) -> Command:
    """Make the object; refused where there is one of that name."""
    stream = stream_of(kind, key_of(manifest))

    def decide(states: States) -> Decision:
        made = create_object(states.get(stream), KINDS[kind], manifest, uid=uid, now=rfc3339(now))
        refuse_priority(kind, manifest, states)
        return Decision(events=(with_priority(made, kind, manifest, states),))

    return Command(actor=actor, streams=(stream, *priority_streams(kind, manifest)), decide=decide)


def classed(claim: Manifest, database: Database) -> Manifest:
    """A claim that is to be made, with the default class if it leaves its class to us."""
    if not lacks_class(CLAIM, claim):
        return claim
    with database.read() as connection:
        return with_default_class(claim, load_classes(connection))


def updating(kind: str, seen: ObjectState, manifest: Manifest, *, actor: str, status: bool = False) -> Command:
    """The object as it should be, if it is still as it was seen. A main update leaves the status alone."""
    wanted = {**manifest, "metadata": {**metadata(manifest), "resourceVersion": str(seen.rv)}}
    stream = stream_of(kind, key_of(manifest))
    return _one(
        stream,
        actor,
        lambda state: update_object(state, KINDS[kind], wanted, status=status, by_volume_controller=True),
    )


def deleting(kind: str, seen: ObjectState, *, actor: str, now: int, grace: int | None = 0) -> Command:
    """Delete the object if it is still as it was seen; with finalizers it only learns that it is to go.

    `grace`: as in `core.objects.delete_object`.
    """
    key = key_of(seen.manifest or {})
    uid = metadata(seen.manifest or {}).get("uid")
    return _one(
        stream_of(kind, key),
        actor,
        lambda state: delete_object(
            state, KINDS[kind], key, now=rfc3339(now), uid=uid, rv=str(seen.rv), grace=grace
        ),
    )


def telling(
    kind: str, key: str, *, uid: str, type_: str, reason: str, message: str, component: str, actor: str, now: int,
    place: str | None = None, once: bool = False,
) -> Command:  # fmt: skip
    """A Kubernetes event about the object. Said again it is counted; with `once`, it is not said again."""
    stream = place or notice_stream(kind, key, uid, reason, message)

    def decide(state: State | None) -> NewEvent | None:
        if once and state is not None:
            return None
        return notice_event(
            state, stream, kind=kind, key=key, uid=uid, type_=type_, reason=reason, message=message,
            component=component, now=rfc3339(now),
        )  # fmt: skip

    return _one(stream, actor, decide)


def all_of(*commands: Command, seen: Mapping[str, State]) -> Command:
    """All of them or none, and only while these streams are as they were seen."""
    streams = dict.fromkeys((*(stream for it in commands for stream in it.streams), *seen))

    def decide(states: States) -> Decision:
        return Decision(events=tuple(event for it in commands for event in it.decide(states).events))

    versions = {stream: state.version for stream, state in seen.items()}
    return Command(
        actor=commands[0].actor,
        streams=tuple(streams),
        decide=decide,
        precondition=Precondition(versions=versions),
    )


def unchanged(seen: Mapping[str, int], *, actor: str) -> Command:
    """Writes nothing; refused where one of the streams is at another version than was seen (0: there is no such
    object). What cannot be undone is done only after this: it looks under the log's lock."""
    return Command(actor=actor, streams=(), decide=lambda _: NOTHING, precondition=Precondition(objects=seen))


def key_of(manifest: Manifest) -> str:
    """`name` or `namespace/name`."""
    names = metadata(manifest)
    return f"{names['namespace']}/{names['name']}" if names.get("namespace") else str(names["name"])


def _one(stream: str, actor: str, decide: Callable[[State | None], NewEvent | None]) -> Command:
    def decided(states: States) -> Decision:
        event = decide(states.get(stream))
        return NOTHING if event is None else Decision(events=(event,))

    return Command(actor=actor, streams=(stream,), decide=decided)
