"""Commands over HTTP: objects are applied, created and deleted, effects and reservations are managed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.question_command import answer_to
from volsched.cli.remote import get
from volsched.cli.remote.served_objects import near
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.cli.remote.server_client import ServerClient
from volsched.kube.manifest_reader import Loaded
from volsched.log.commands import ConflictError, RejectedError
from volsched.log.events.streams import kind_called
from volsched.objects.object_write import Applied
from volsched.objects.rules.admission import NAMESPACE
from volsched.objects.rules.object_events import AlreadyExistsError, NotFoundError, ObjectError
from volsched.objects.submission import Target, Verb, namespace_manifest
from volsched.questions.audit.answers import Item
from volsched.workloads.rules.repairs import asks_for_nodes

# `volsched apply`, `create` and `delete` over HTTP: each object is a request of its own.

MERGE_PATCH = "application/merge-patch+json"
STRICT = {"fieldValidation": "Strict"}
"""Unknown fields are refused, as without a server."""


def submit(
    server: RemoteServer, loaded: Sequence[Loaded], verb: Verb, *, reason: str | None
) -> Iterator[tuple[Loaded, Applied | RejectedError]]:
    """The outcome of each object, in order."""
    outcomes: dict[int, Applied | RejectedError] = {}
    next_number = 0
    for number in _order(loaded):
        outcomes[number] = _submit(server, loaded[number], verb, reason)
        while next_number in outcomes:
            yield loaded[next_number], outcomes.pop(next_number)
            next_number += 1


def create_namespaces(server: RemoteServer, names: Sequence[str], *, reason: str | None) -> list[str]:
    """Create those that do not exist; returns their names."""
    named = kind_called(NAMESPACE)
    created: list[str] = []
    for name in names:
        try:
            server.request("GET", get.one(named, name))
        except ServerRefusedError as error:
            if error.code != 404:
                raise
            server.request("POST", get.collection(named, None), body=namespace_manifest(name), reason=reason)
            created.append(name)
    return created


def delete_targets(
    server: RemoteServer, targets: Sequence[Target], *, reason: str | None
) -> Iterator[tuple[Target, bool | RejectedError]]:
    """Whether each is gone; False: it is marked."""
    for target in targets:
        named = kind_called(target.kind.name)
        try:
            answer = server.request("DELETE", get.one(named, target.key), reason=reason).body
        except ServerRefusedError as error:
            if error.code == 404:
                yield target, NotFoundError(near(server, named, target.key))
            else:
                yield target, refusal_of(error)
        else:
            yield target, answer["kind"] == "Status" or not answer["metadata"].get("finalizers")


def _order(loaded: Sequence[Loaded]) -> list[int]:
    """Namespaces before the objects in them, and nodes before volumes that refer to them: a store knows all of the
    input from the start, a server one object at a time."""
    numbers = list(range(len(loaded)))
    if any(asks_for_nodes(it.kind.name, it.manifest) for it in loaded):
        numbers.sort(key=lambda it: loaded[it].kind.name != "Node")
    numbers.sort(key=lambda it: loaded[it].kind.name != NAMESPACE)
    return numbers


def _submit(server: RemoteServer, entry: Loaded, verb: Verb, reason: str | None) -> Applied | RejectedError:
    try:
        if verb is Verb.APPLY:
            return _apply(server, entry, reason)
        _create(server, entry, reason)
    except ServerRefusedError as error:
        return refusal_of(error)
    return Applied.CREATED


def _apply(server: RemoteServer, entry: Loaded, reason: str | None) -> Applied:
    path = get.one(kind_called(entry.kind.name), entry.key)
    try:
        before = server.request("GET", path).body
    except ServerRefusedError as error:
        if error.code != 404:
            raise
        _create(server, entry, reason)
        return Applied.CREATED
    after = server.request(
        "PATCH", path, query=STRICT, body=object_patch(entry), content=MERGE_PATCH, reason=reason
    ).body
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return Applied.UNCHANGED if same else Applied.CONFIGURED


def object_patch(entry: Loaded) -> dict[str, Any]:
    """The manifest as a patch, without status, which controllers write, and for any version of the object."""
    head = {name: it for name, it in entry.manifest["metadata"].items() if name != "resourceVersion"}
    if not head.get("uid"):
        head.pop("uid", None)
    return {**{name: it for name, it in entry.manifest.items() if name != "status"}, "metadata": head}


def _create(server: RemoteServer, entry: Loaded, reason: str | None) -> None:
    namespace = entry.key.rpartition("/")[0] or None
    path = get.collection(kind_called(entry.kind.name), namespace)
    server.request("POST", path, query=STRICT, body=entry.manifest, reason=reason)


def refusal_of(error: ServerRefusedError) -> RejectedError:
    """The error that the rules would have raised, with the message of the server."""
    if error.code == 404:
        return NotFoundError(str(error))
    if error.code == 409:
        kind = AlreadyExistsError if error.reason == "AlreadyExists" else ConflictError
        return kind(str(error))
    return ObjectError(str(error))


# `volsched reservations create`, `confirm`, `renew` and `cancel` over HTTP.

UNSCHEDULABLE = "Unschedulable"


def reserve(server: RemoteServer, pod: str, *, node: str | None, seconds: int, key: str | None) -> Item:
    namespace, _, name = pod.partition("/")
    spec = {"pod": name, "ttlSeconds": seconds} | ({} if node is None else {"node": node})
    more = {} if key is None else {"Idempotency-Key": key}
    try:
        path = get.own("reservations", namespace=namespace)
        return item_of(server.request("POST", path, body={"spec": spec}, more=more).body)
    except ServerRefusedError as error:
        if error.reason != UNSCHEDULABLE:
            server.refuse(error)
        fail(Exit.UNSATISFIABLE, str(error), f"see why: volsched audit why {error.details.get('name')}")


def confirm(server: RemoteServer, name: str) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/confirm"))


def renew(server: RemoteServer, name: str, *, seconds: int) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/renew", body={"ttlSeconds": seconds}))


def cancel(server: RemoteServer, name: str, *, reason: str | None) -> str:
    """Why it has ended; if it had before, the first reason."""
    path = _path(server, name)
    try:
        return str(server.request("DELETE", path, query={"reason": reason}).body["status"]["reason"])
    except ServerRefusedError as error:
        if error.code != 404:
            server.refuse(error)
        return str(_binding(server, name)["status"].get("reason"))


def item_of(manifest: Mapping[str, Any]) -> Item:
    """A Reservation as the command line shows it."""
    head, status = manifest["metadata"], manifest["status"]
    return {
        "reservation": head["name"],
        "pod": f"{head['namespace']}/{manifest['spec']['pod']}",
        "node": status["node"],
        "state": status["state"],
        "expiresAt": status.get("expiresAt"),
        "legs": [
            {"claim": it["claim"], "volume": it.get("volume"), "state": it["state"]} for it in status["claims"]
        ],
    }


def _path(server: RemoteServer, name: str) -> str:
    """A reservation is in the namespace of its pod, which is not on the command line."""
    namespace = _binding(server, name)["metadata"]["namespace"]
    return get.own("reservations", name, namespace=namespace)


def _binding(server: RemoteServer, name: str) -> Mapping[str, Any]:
    bindings = answer_to(ServerClient(server), "bindings", name=name)["items"]
    if not bindings:
        fail(Exit.NOT_FOUND, f'reservation "{name}" not found; see volsched reservations list')
    binding: Mapping[str, Any] = bindings[0]
    return binding
