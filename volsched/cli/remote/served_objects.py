"""`volsched get` of a server as it is now, asked as Kubernetes' clients do: to read objects is right enough."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import NamedObject, words_of
from volsched.cli.output import Sheet
from volsched.cli.question_command import Client, checked
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

    def every(self, asked: NamedObject) -> Sequence[ObjectRow]:
        if not asked.named.is_object:
            return self._decisions(asked)
        try:
            return self._table(get.collection(asked.named, asked.namespace), {"labelSelector": self.selector})
        except ServerRefusedError as error:
            self.server.refuse(error)

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        rows: Sequence[ObjectRow] = ()
        if not named.is_object:
            rows = self.client.objects(question(named.plural), checked(named.plural, name=key)).rows
        else:
            try:
                rows = self._table(get.one(named, key), {})
            except ServerRefusedError as error:
                if error.code != 404:
                    self.server.refuse(error)
        if not rows:
            raise UnknownError(near(self.server, named, key))
        return rows

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        if not asked.named.is_object:
            fail(Exit.USAGE, f"{asked.named.plural} cannot be watched over HTTP; run it where the store is")
        namespaces = {key.rpartition("/")[0] for key in asked.keys}
        namespace = namespaces.pop() or None if len(namespaces) == 1 else asked.namespace
        path = get.collection(asked.named, namespace if not asked.keys or not namespaces else None)
        while True:
            for type_, table in self._changes(path):
                for row in table_answer(table).rows:
                    if not asked.keys or row.key in asked.keys:
                        sheet.print([row], gone=type_ == "DELETED")

    def _changes(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Until the server ends the watch, as it does every hour; the next one goes on where it ended."""
        query: Query = {
            **WITH_OBJECTS,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._position,
            "labelSelector": self.selector,
        }
        try:
            for change in self.server.lines(path, query, accept=TABLE):
                told = change["object"]
                if change["type"] == "ERROR":
                    fail(Exit.FAILURE, f"{told.get('message')}; run the command again")
                self._position = metadata(told).get("resourceVersion", self._position)
                if change["type"] != "BOOKMARK":
                    yield change["type"], told
        except ServerRefusedError as error:
            self.server.refuse(error)

    def _decisions(self, asked: NamedObject) -> list[ObjectRow]:
        """Bindings and attempts come in pages and as they began; attempts are shown as they were last seen."""
        name, rows, after = asked.named.plural, list[ObjectRow](), None
        while True:
            page = checked(name, namespace=asked.namespace, limit=PAGE, after=after)
            answer = self.client.objects(question(name), page)
            rows += answer.rows
            after = answer.after
            if after is None:
                break
        if asked.named.noun == ATTEMPT:
            rows.sort(key=lambda it: str(it.manifest()["status"]["lastAt"]))
        return rows

    def _table(self, path: str, query: Query) -> Sequence[ObjectRow]:
        told = self.server.tell("GET", path, query={**WITH_OBJECTS, **query}, accept=TABLE).body
        self._position = metadata(told).get("resourceVersion", "")
        return table_answer(told).rows


def near(server: RemoteServer, named: Named, key: str) -> str:
    """What is said of an object that is not there."""
    try:
        ServerClient(server).document(question("describe"), checked("describe", **words_of(named, key)))
    except UnknownError as error:
        return str(error)
    return f'{named.title} "{key}" was not found, and is there by now; try again'
