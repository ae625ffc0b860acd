"""`volsched get` from a server, read as Kubernetes' clients do: permission to read objects is enough."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import NamedObject, words_of
from volsched.cli.output import Sheet
from volsched.cli.question_command import Client, parameters_for
from volsched.cli.remote import get
from volsched.cli.remote.server import TABLE, Query, RemoteServer, ServerRefusedError
from volsched.cli.remote.server_client import WITH_OBJECTS, ServerClient, table_answer
from volsched.kube.manifest import metadata
from volsched.log.events.streams import ATTEMPT, Named
from volsched.questions.get.object_rows import ObjectRow
from volsched.questions.refusals import UnknownError
from volsched.questions.registry import question

PAGE = 1_000


@dataclass(slots=True)
class ServedObjects:
    client: Client
    server: RemoteServer
    selector: str | None
    _position: str = field(default="", init=False)

    def every(self, request: NamedObject) -> Sequence[ObjectRow]:
        if not request.named.is_object:
            return self._decisions(request)
        try:
            return self._table(get.collection(request.named, request.namespace), {"labelSelector": self.selector})
        except ServerRefusedError as error:
            self.server.refuse(error)

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        rows: Sequence[ObjectRow] = ()
        if not named.is_object:
            rows = self.client.objects(question(named.plural), parameters_for(named.plural, name=key)).rows
        else:
            try:
                rows = self._table(get.one(named, key), {})
            except ServerRefusedError as error:
                if error.code != 404:
                    self.server.refuse(error)
        if not rows:
            raise UnknownError(near(self.server, named, key))
        return rows

    def watch(self, request: NamedObject, sheet: Sheet) -> None:
        if not request.named.is_object:
            fail(Exit.USAGE, f"{request.named.plural} cannot be watched over HTTP; run it where the store is")
        namespaces = {key.rpartition("/")[0] for key in request.keys}
        namespace = namespaces.pop() or None if len(namespaces) == 1 else request.namespace
        path = get.collection(request.named, namespace if not request.keys or not namespaces else None)
        while True:
            for type_, table in self._changes(path):
                for row in table_answer(table).rows:
                    if not request.keys or row.key in request.keys:
                        sheet.print([row], gone=type_ == "DELETED")

    def _changes(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Until the server ends the watch, as it does every hour; the next one resumes where it ended."""
        query: Query = {
            **WITH_OBJECTS,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._position,
            "labelSelector": self.selector,
        }
        try:
            for change in self.server.lines(path, query, accept=TABLE):
                manifest = change["object"]
                if change["type"] == "ERROR":
                    fail(Exit.FAILURE, f"{manifest.get('message')}; run the command again")
                self._position = metadata(manifest).get("resourceVersion", self._position)
                if change["type"] != "BOOKMARK":
                    yield change["type"], manifest
        except ServerRefusedError as error:
            self.server.refuse(error)

    def _decisions(self, request: NamedObject) -> list[ObjectRow]:
        """Bindings and attempts, which come in pages, oldest first. Attempts are sorted by their last time."""
        name, rows, after = request.named.plural, list[ObjectRow](), None
        while True:
            page = parameters_for(name, namespace=request.namespace, limit=PAGE, after=after)
            answer = self.client.objects(question(name), page)
            rows += answer.rows
            after = answer.after
            if after is None:
                break
        if request.named.noun == ATTEMPT:
            rows.sort(key=lambda it: str(it.manifest()["status"]["lastAt"]))
        return rows

    def _table(self, path: str, query: Query) -> Sequence[ObjectRow]:
        table = self.server.request("GET", path, query={**WITH_OBJECTS, **query}, accept=TABLE).body
        self._position = metadata(table).get("resourceVersion", "")
        return table_answer(table).rows


def near(server: RemoteServer, named: Named, key: str) -> str:
    """The message for an object that does not exist."""
    try:
        ServerClient(server).document(question("describe"), parameters_for("describe", **words_of(named, key)))
    except UnknownError as error:
        return str(error)
    return f'{named.title} "{key}" was not found, but exists by now; try again'
