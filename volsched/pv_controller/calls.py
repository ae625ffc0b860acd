"""What operations ask for, one call at a time: of the store a command each, of a provisioner a function call.

A provisioner may raise and answer anything; what comes out of here is an answer or a `PluginError`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from volsched.log.commands import Command, Done, LeaseProof
from volsched.log.events.decision import Decision, States
from volsched.log.events.fold import ObjectState, versioned
from volsched.log.events.streams import stream_of
from volsched.objects import door
from volsched.objects.object_write import Author, ObjectWrite
from volsched.provisioning.protocol import Provisioner, Unfinished
from volsched.pv_controller.rules import (
    CLAIM,
    VOLUME,
    Create,
    Delete,
    DeleteAsset,
    LiveGet,
    PluginError,
    Provision,
    Recycle,
    UnfinishedError,
    Update,
    held_claim,
    held_volume,
)

PluginCall = Provision | DeleteAsset | Recycle
StoreCall = Update | Create | Delete | LiveGet
STORED = "stored"
_HELD = {CLAIM: held_claim, VOLUME: held_volume}


def store_command(
    request: StoreCall, *, uid: Callable[[], str], actor: str, lease: LeaseProof, now: int
) -> Command:
    """The request, under the log's lock. Its result is the object's state after it."""
    if isinstance(request, LiveGet):
        stream = stream_of(request.kind, request.key)
        look = Command(
            actor=actor, streams=(stream,), decide=lambda states: Decision(result={STORED: states.get(stream)})
        )
        return look.under(lease)
    write = _write(request, door.controller(actor, now), uid)

    def decide(states: States) -> Decision:
        decision = write.command.decide(states)
        return replace(decision, result={STORED: write.state})

    return replace(write.command, decide=decide).under(lease)


def stored_by(done: Done) -> ObjectState | None:
    """The object after the request, at the version that the log gave it; None: there is none."""
    stored = done.result[STORED]
    if not isinstance(stored, ObjectState) or stored.manifest is None:
        return None
    return stored._replace(rv=done.position) if done.events else stored


def reply_to(request: StoreCall, stored: ObjectState | None) -> Any:
    """The answer that the tables expect."""
    if isinstance(request, Update):
        # Gone with its last finalizer: nobody can write it again.
        return _HELD[request.kind](request.manifest if stored is None else versioned(stored))
    return None if stored is None else versioned(stored)


def _write(request: Update | Create | Delete, author: Author, uid: Callable[[], str]) -> ObjectWrite:
    match request:
        case Update():
            return door.update(request.kind, request.manifest, author, status=request.status)
        case Create():
            return door.create(request.kind, request.manifest, author, uid=uid())
        case Delete():
            return door.delete(request.kind, request.key, author, uid=request.uid)


def ask(provisioner: Provisioner, request: PluginCall, now: int) -> Any:
    if isinstance(request, DeleteAsset):
        return provisioner.delete(request.volume, now)
    if isinstance(request, Recycle):
        return provisioner.recycle(request.volume, now)
    made = provisioner.provision(request, now)
    return made if isinstance(made, Unfinished) else _volume(made, request)


def _volume(made: Any, request: Provision) -> Any:
    """The answer of a provisioner, which may be anything."""
    try:
        held_volume({**made, "metadata": {**(made.get("metadata") or {}), "name": request.volume_name}})
        return {**made, "spec": {**made["spec"]}}
    except (ValidationError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise PluginError(f"{request.plugin} answered what is not a volume: {error}") from error


def no_answer(request: PluginCall, why: str) -> PluginError:
    """Whether storage was made is not known then, so the choice of a node stays. To delete again does no harm."""
    return UnfinishedError(why) if isinstance(request, Provision) else PluginError(why)
