"""Commands to fill a store with: small, valid, and different where it matters."""

from typing import Any

from volsched.log.commands import Command, Done, Outcome, Precondition
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision, NewEffect, ObjectState, States
from volsched.log.transaction import execute

NOW = 1_700_000_000_000_000


def volume_manifest(name: str, size: str = "10Gi", phase: str = "Available") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
        "status": {"phase": phase},
    }


def append(*events: NewEvent, actor: str = "test", **kw: Any) -> Command:
    """A command that writes these events, whatever the streams have become."""
    streams = tuple({event.stream for event in events})
    return Command(
        actor=actor, streams=streams, decide=lambda _: Decision(events=events), precondition=Precondition(**kw)
    )


def create_volume(name: str, size: str = "10Gi", **kw: Any) -> Command:
    event = NewEvent(stream=f"volume/{name}", type="VolumeCreated", data={"patch": volume_manifest(name, size)})
    return append(event, **kw)


def change_volume(name: str, patch: dict[str, Any], **kw: Any) -> Command:
    return append(NewEvent(stream=f"volume/{name}", type="VolumeChanged", data={"patch": patch}), **kw)


def delete_volume(name: str, **kw: Any) -> Command:
    return append(NewEvent(stream=f"volume/{name}", type="VolumeDeleted"), **kw)


def plan(binding: str, volume: str, *, claim: str = "db/data", effects: bool = True) -> Command:
    """A binding of one leg: planned, the volume assumed, its prebind queued; as one command."""

    def decide(states: States) -> Decision:
        state = states[f"volume/{volume}"]
        assert isinstance(state, ObjectState)
        planned = NewEvent(
            stream=f"binding/{binding}",
            type="BindingPlanned",
            binding=binding,
            data={
                "pod": f"db/app-{binding}", "pod_uid": "uid-app", "node": "n1", "decided_at": state.rv,
                "legs": [{"claim": claim, "volume": volume}],
            },
        )  # fmt: skip
        assumed = NewEvent(
            stream=f"volume/{volume}",
            type="VolumeAssumed",
            binding=binding,
            data={"binding": binding, "rv": state.rv, "patch": {"spec": {"claimRef": {"name": claim}}}},
        )
        prebind = NewEffect(
            key=f"{binding}/0/prebind", lane=f"{binding}/0", queue="prebind", kind="prebind", binding=binding
        )
        return Decision(events=(planned, assumed), effects=(prebind,) if effects else ())

    return Command(actor="scheduler", streams=(f"binding/{binding}", f"volume/{volume}"), decide=decide)


def run(database: Database, *commands: Command, now: int = NOW) -> list[Outcome]:
    """Carry out commands of which nothing follows: the store's own tests need no pods, nodes and claims."""
    return execute(database, commands, now=now, react=lambda _binding, _states: NOTHING)


def commit(database: Database, command: Command, *, now: int = NOW) -> Done:
    """Carry out a command with all that follows from it, or raise what refused it."""
    (outcome,) = execute(database, [command], now=now)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def must(database: Database, *commands: Command, now: int = NOW) -> list[Done]:
    """Carry out commands that have to succeed."""
    outcomes = run(database, *commands, now=now)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, Done)]
