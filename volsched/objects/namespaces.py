"""Namespaces that are made because something is to be in them: by a server that starts, by commands."""

from collections.abc import Iterable, Sequence
from uuid import uuid4

from volsched.kube.manifest_reader import Loaded
from volsched.log.batch import load_states
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState
from volsched.log.transaction import execute
from volsched.objects.door import controller, create
from volsched.objects.rules.admission import NAMESPACE, SYSTEM_NAMESPACES, namespace_stream
from volsched.objects.rules.refusals import AlreadyExistsError


def named_namespaces(loaded: Iterable[Loaded]) -> list[str]:
    """Those that objects are in and none of them makes; what a server brings along is left out."""
    given = list(loaded)
    made = {entry.key for entry in given if entry.kind.name == NAMESPACE}
    named = dict.fromkeys(entry.value.meta.namespace for entry in given if entry.kind.namespaced)
    return [name for name in named if name not in made and name not in SYSTEM_NAMESPACES]


def namespace_manifest(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": name}}


def ensure_namespaces(database: Database, names: Sequence[str], *, actor: str, now: int) -> list[str]:
    """Make those that are not there; answers which these were."""
    if not names:
        return []
    with database.read() as connection:
        states, _ = load_states(database, connection, [namespace_stream(name) for name in names])
    there = {stream for stream, it in states.items() if isinstance(it, ObjectState) and it.manifest is not None}
    missing = [name for name in names if namespace_stream(name) not in there]
    author = controller(actor, now)
    commands = [create(NAMESPACE, namespace_manifest(name), author, uid=str(uuid4())).command for name in missing]
    outcomes = execute(database, commands, now=now) if commands else []
    for outcome in outcomes:
        # Somebody else may have made it meanwhile.
        if isinstance(outcome, Exception) and not isinstance(outcome, AlreadyExistsError):
            raise outcome
    return missing
