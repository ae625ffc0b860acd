"""`volsched apply`, `create` and `delete` over HTTP: each object is a request of its own."""

from collections.abc import Iterator, Sequence
from typing import Any

from volsched.cli.remote import paths
from volsched.cli.remote.get import near
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.kube.manifest_reader import Loaded
from volsched.log.commands import ConflictError, RejectedError
from volsched.log.events.kind_names import kind_called
from volsched.objects.namespaces import namespace_manifest
from volsched.objects.object_write import Applied
from volsched.objects.rules.admission import NAMESPACE
from volsched.objects.rules.refusals import AlreadyExistsError, NotFoundError, ObjectError
from volsched.objects.submission import Target, Verb
from volsched.workloads.rules.zonal_upgrade import asks_for_nodes

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
            server.tell("GET", paths.one(named, name))
        except ServerRefusedError as error:
            if error.code != 404:
                raise
            server.tell("POST", paths.collection(named, None), body=namespace_manifest(name), reason=reason)
            made.append(name)
    return made


def deleted(
    server: RemoteServer, targets: Sequence[Target], *, reason: str | None
) -> Iterator[tuple[Target, bool | RejectedError]]:
    """Whether each is gone; False: it is marked."""
    for target in targets:
        named = kind_called(target.kind.name)
        try:
            told = server.tell("DELETE", paths.one(named, target.key), reason=reason).body
        except ServerRefusedError as error:
            if error.code == 404:
                yield target, NotFoundError(near(server, named, target.key))
            else:
                yield target, _error(error)
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
        return _error(error)
    return Applied.CREATED


def _apply(server: RemoteServer, entry: Loaded, reason: str | None) -> Applied:
    path = paths.one(kind_called(entry.kind.name), entry.key)
    try:
        before = server.tell("GET", path).body
    except ServerRefusedError as error:
        if error.code != 404:
            raise
        _create(server, entry, reason)
        return Applied.CREATED
    after = server.tell("PATCH", path, query=STRICT, body=_patch(entry), content=MERGE_PATCH, reason=reason).body
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return Applied.UNCHANGED if same else Applied.CONFIGURED


def _patch(entry: Loaded) -> dict[str, Any]:
    """What the manifest says of the object; status is left to the controllers, and any version will do."""
    head = {name: it for name, it in entry.manifest["metadata"].items() if name != "resourceVersion"}
    if not head.get("uid"):
        head.pop("uid", None)
    return {**{name: it for name, it in entry.manifest.items() if name != "status"}, "metadata": head}


def _create(server: RemoteServer, entry: Loaded, reason: str | None) -> None:
    namespace = entry.key.rpartition("/")[0] or None
    path = paths.collection(kind_called(entry.kind.name), namespace)
    server.tell("POST", path, query=STRICT, body=entry.manifest, reason=reason)


def _error(error: ServerRefusedError) -> RejectedError:
    """As the rules would have said it; the message is the server's."""
    if error.code == 404:
        return NotFoundError(str(error))
    if error.code == 409:
        kind = AlreadyExistsError if error.reason == "AlreadyExists" else ConflictError
        return kind(str(error))
    return ObjectError(str(error))
