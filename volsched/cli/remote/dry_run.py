"""`--dry-run` over HTTP: what a server would do, checked by it or derived from its objects; nothing is written."""

from collections.abc import Iterator, Sequence
from typing import Any

from volsched.cli.remote import get
from volsched.cli.remote.commands import MERGE_PATCH, STRICT, object_patch, refusal_of
from volsched.cli.remote.served_objects import near
from volsched.cli.remote.server import RemoteServer, ServerRefusedError
from volsched.kube.kinds import KINDS, Kind
from volsched.kube.manifest_reader import Loaded
from volsched.kube.patches import merged
from volsched.log.commands import RejectedError
from volsched.log.events.streams import kind_called
from volsched.objects.object_write import Applied
from volsched.objects.rules.admission import NAMESPACE
from volsched.objects.rules.object_events import AlreadyExistsError, NotFoundError
from volsched.objects.submission import Target, Verb, named_namespaces

DRY = {"dryRun": "All"}


def rehearse(
    server: RemoteServer, loaded: Sequence[Loaded], verb: Verb, *, judged: bool
) -> Iterator[tuple[Loaded, Applied | RejectedError]]:
    """`judged`: the server checks each object, except those in a namespace that does not exist yet."""
    named = {*named_namespaces(loaded), *(it.key for it in loaded if it.kind.name == NAMESPACE)}
    missing = {name for name in named if _current(server, KINDS[NAMESPACE], name) is None}
    for entry in loaded:
        asks = judged and entry.key.rpartition("/")[0] not in missing
        try:
            yield entry, _outcome(server, entry, verb, asks)
        except ServerRefusedError as error:
            yield entry, refusal_of(error)


def rehearse_deletion(
    server: RemoteServer, targets: Sequence[Target], *, judged: bool
) -> Iterator[tuple[Target, bool | RejectedError]]:
    """Whether each would be gone; False: it would be marked."""
    for target in targets:
        named = kind_called(target.kind.name)
        before = _current(server, target.kind, target.key)
        if before is None:
            yield target, NotFoundError(near(server, named, target.key))
            continue
        try:
            if judged:
                server.request("DELETE", get.one(named, target.key), query=DRY)
            yield target, not before["metadata"].get("finalizers")
        except ServerRefusedError as error:
            yield target, refusal_of(error)


def _outcome(server: RemoteServer, entry: Loaded, verb: Verb, asks: bool) -> Applied | RejectedError:
    named = kind_called(entry.kind.name)
    before = _current(server, entry.kind, entry.key)
    if before is None or verb is Verb.CREATE:
        if asks:
            path = get.collection(named, entry.key.rpartition("/")[0] or None)
            server.request("POST", path, query={**STRICT, **DRY}, body=entry.manifest)
        elif before is not None:
            return AlreadyExistsError(
                f'{entry.kind.name} "{entry.key}" already exists; use another name, or update it'
            )
        return Applied.CREATED
    patch = object_patch(entry)
    if asks:
        after = server.request(
            "PATCH", get.one(named, entry.key), query={**STRICT, **DRY}, body=patch, content=MERGE_PATCH
        ).body
    else:
        after = merged(before, patch)
    return Applied.UNCHANGED if _content(after) == _content(before) else Applied.CONFIGURED


def _content(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without the owners of its fields, which the server keeps."""
    head = {name: it for name, it in manifest["metadata"].items() if name != "managedFields"}
    return {**manifest, "metadata": head}


def _current(server: RemoteServer, kind: Kind, key: str) -> dict[str, Any] | None:
    try:
        body: dict[str, Any] = server.request("GET", get.one(kind_called(kind.name), key)).body
    except ServerRefusedError as error:
        if error.code != 404:
            raise
        return None
    return body
