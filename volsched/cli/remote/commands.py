"""Commands over HTTP: objects are applied, created and deleted, effects and reservations are managed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.question_command import asked_of
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


def submitted(
    server: RemoteServer, loaded: Sequence[Loaded], verb: Verb, *, reason: str | None
) -> Iterator[tuple[Loaded, Applied | RejectedError]]:
    """What became of each, in order."""
    done: dict[int, Applied | RejectedError] = {}
    told = 0
    for number in _order(loaded):
        done[number] = _submit(server, loaded[number], verb, reason)
        while told in done:
            yield loaded[told], done.pop(told)
            told += 1


def made_namespaces(server: RemoteServer, names: Sequence[str], *, reason: str | None) -> list[str]:
    """Those of these that were not there, and are now."""
    named = kind_called(NAMESPACE)
    made: list[str] = []
    for name in names:
        try:
            server.tell("GET", get.one(named, name))
        except ServerRefusedError as error:
            if error.code != 404:
                raise
            server.tell("POST", get.collection(named, None), body=namespace_manifest(name), reason=reason)
            made.append(name)
    return made


def deleted(
    server: RemoteServer, targets: Sequence[Target], *, reason: str | None
) -> Iterator[tuple[Target, bool | RejectedError]]:
    """Whether each is gone; False: it is marked."""
    for target in targets:
        named = kind_called(target.kind.name)
        try:
            told = server.tell("DELETE", get.one(named, target.key), reason=reason).body
        except ServerRefusedError as error:
            if error.code == 404:
                yield target, NotFoundError(near(server, named, target.key))
            else:
                yield target, refusal_of(error)
        else:
            yield target, told["kind"] == "Status" or not told["metadata"].get("finalizers")


def _order(loaded: Sequence[Loaded]) -> list[int]:
    """Namespaces before what is in them, and nodes first where volumes ask for them: without a server all of the
    input is known from the start."""
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
        before = server.tell("GET", path).body
    except ServerRefusedError as error:
        if error.code != 404:
            raise
        _create(server, entry, reason)
        return Applied.CREATED
    after = server.tell(
        "PATCH", path, query=STRICT, body=object_patch(entry), content=MERGE_PATCH, reason=reason
    ).body
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return Applied.UNCHANGED if same else Applied.CONFIGURED


def object_patch(entry: Loaded) -> dict[str, Any]:
    """What the manifest says of the object; status is left to the controllers, and any version will do."""
    head = {name: it for name, it in entry.manifest["metadata"].items() if name != "resourceVersion"}
    if not head.get("uid"):
        head.pop("uid", None)
    return {**{name: it for name, it in entry.manifest.items() if name != "status"}, "metadata": head}


def _create(server: RemoteServer, entry: Loaded, reason: str | None) -> None:
    namespace = entry.key.rpartition("/")[0] or None
    path = get.collection(kind_called(entry.kind.name), namespace)
    server.tell("POST", path, query=STRICT, body=entry.manifest, reason=reason)


def refusal_of(error: ServerRefusedError) -> RejectedError:
    """As the rules would have said it; the message is the server's."""
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
        return item_of(server.tell("POST", path, body={"spec": spec}, more=more).body)
    except ServerRefusedError as error:
        if error.reason != UNSCHEDULABLE:
            server.refuse(error)
        fail(Exit.UNSATISFIABLE, str(error), f"see why: volsched audit why {error.details.get('name')}")


def confirm(server: RemoteServer, name: str) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/confirm"))


def renew(server: RemoteServer, name: str, *, seconds: int) -> Item:
    return item_of(server.ask("POST", f"{_path(server, name)}/renew", body={"ttlSeconds": seconds}))


def cancel(server: RemoteServer, name: str, *, reason: str | None) -> str:
    """Why it has ended; said again, what was said first."""
    path = _path(server, name)
    try:
        return str(server.tell("DELETE", path, query={"reason": reason}).body["status"]["reason"])
    except ServerRefusedError as error:
        if error.code != 404:
            server.refuse(error)
        return str(_binding(server, name)["status"].get("reason"))


def item_of(manifest: Mapping[str, Any]) -> Item:
    """A Reservation in the form in which the command line shows it."""
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
    """It lies in the namespace of its pod, which people do not name."""
    namespace = _binding(server, name)["metadata"]["namespace"]
    return get.own("reservations", name, namespace=namespace)


def _binding(server: RemoteServer, name: str) -> Mapping[str, Any]:
    found = asked_of(ServerClient(server), "bindings", name=name)["items"]
    if not found:
        fail(Exit.NOT_FOUND, f'reservation "{name}" not found; see volsched reservations list')
    binding: Mapping[str, Any] = found[0]
    return binding
