"""`volsched get` over HTTP: the API's tables have its columns, and come with the objects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import NamedObject
from volsched.cli.output import OutputRow, Sheet
from volsched.cli.remote import paths
from volsched.cli.remote.server import TABLE, Query, RemoteServer, ServerRefusedError
from volsched.kube.manifest import metadata
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.log.events.kind_names import Named
from volsched.log.events.streams import ATTEMPT
from volsched.questions.get.columns import columns_of

PAGE = 1_000
WITH_OBJECTS: Query = {"includeObject": "Object"}


@dataclass(slots=True)
class ServedTable:
    """What a server has, now or as of a moment."""

    server: RemoteServer
    as_of: str | None = None
    selector: str | None = None
    labels: LabelSelector | None = None
    """The same, read."""
    _position: str = field(default="", init=False)

    def found(self, asked: Sequence[NamedObject]) -> list[tuple[list[OutputRow], list[str]]]:
        """Of each, rows, and what to say of the names that are not there."""
        return [self._found(it) for it in asked]

    def _found(self, asked: NamedObject) -> tuple[list[OutputRow], list[str]]:
        if not asked.keys:
            return list(self._every(asked)), []
        rows: list[OutputRow] = []
        missing: list[str] = []
        for key in asked.keys:
            try:
                rows += self._one(asked.named, key)
            except ServerRefusedError as error:
                if error.code != 404:
                    self.server.refuse(error)
                missing.append(str(error))
        return rows, missing

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        """Until Ctrl-C, which is how a watch ends well."""
        if not asked.named.is_object:
            fail(Exit.USAGE, f"{asked.named.plural} cannot be watched over HTTP; run it where the store is")
        namespaces = {key.rpartition("/")[0] for key in asked.keys}
        namespace = namespaces.pop() or None if len(namespaces) == 1 else asked.namespace
        path = paths.collection(asked.named, namespace if not asked.keys or not namespaces else None)
        try:
            while True:
                for type_, table in self._changes(path):
                    for row in _rows(asked.named, table):
                        if not asked.keys or row.key in asked.keys:
                            sheet.print([row], gone=type_ == "DELETED")
        except KeyboardInterrupt:
            return

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

    def _one(self, named: Named, key: str) -> list[OutputRow]:
        """Raises RefusedError 404, with what comes near, where it is not there."""
        if self.as_of is not None:
            path = paths.of_one("history", named, key, "object")
            return _rows(named, self._table(path, {"asOf": self.as_of}))
        if not named.is_object:
            rows = _rows(named, self._table(paths.own(named.plural), {"name": key}))
        else:
            try:
                rows = _rows(named, self._table(paths.one(named, key), {}))
            except ServerRefusedError as error:
                if error.code != 404:
                    raise
                rows = []
        if not rows:
            raise ServerRefusedError(404, {"message": near(self.server, named, key)})
        return rows

    def _every(self, asked: NamedObject) -> Iterator[OutputRow]:
        named = asked.named
        try:
            if self.as_of is not None:
                path = paths.own("history", named.plural, namespace=asked.namespace)
                for row in _rows(named, self._table(path, {"asOf": self.as_of})):
                    labels = metadata(row.manifest()).get("labels", {})
                    if self.labels is None or label_selector_matches(self.labels, labels):
                        yield row
            elif named.is_object:
                query = {"labelSelector": self.selector}
                yield from _rows(named, self._table(paths.collection(named, asked.namespace), query))
            else:
                yield from self._decided(asked)
        except ServerRefusedError as error:
            self.server.refuse(error)

    def _decided(self, asked: NamedObject) -> list[OutputRow]:
        """Bindings and attempts come in pages and as they began; attempts are shown as they were last seen."""
        path, rows, after = paths.own(asked.named.plural, namespace=asked.namespace), [], ""
        while True:
            table = self._table(path, {"limit": PAGE, "continue": after or None})
            rows += _rows(asked.named, table)
            after = metadata(table).get("continue", "")
            if not after:
                break
        if asked.named.noun == ATTEMPT:
            rows.sort(key=lambda it: str(it.manifest()["status"]["lastAt"]))
        return rows

    def _table(self, path: str, query: Query) -> Mapping[str, Any]:
        told = self.server.tell("GET", path, query={**WITH_OBJECTS, **query}, accept=TABLE).body
        self._position = metadata(told).get("resourceVersion", "")
        found: Mapping[str, Any] = told
        return found


def near(server: RemoteServer, named: Named, key: str) -> str:
    """What is said of an object that is not there."""
    try:
        server.tell("GET", paths.of_one("describe", named, key))
    except ServerRefusedError as error:
        return str(error)
    return f'{named.title} "{key}" was not found, and is there by now; try again'


def _rows(named: Named, table: Mapping[str, Any]) -> list[OutputRow]:
    headers = [column.header for column in columns_of(named.noun, wide=True)]
    return [_row(named, headers, it["cells"], it["object"]) for it in table["rows"]]


def _row(named: Named, headers: list[str], cells: list[str], manifest: Mapping[str, Any]) -> OutputRow:
    if len(cells) != len(headers):
        fail(Exit.FAILURE, f"the server shows other columns of {named.plural} than we do; use its own version")
    head, by_header = metadata(manifest), dict(zip(headers, cells, strict=True))
    name, namespace = str(head["name"]), str(head.get("namespace", ""))
    key = f"{namespace}/{name}" if named.is_object and named.namespaced else name
    return OutputRow(key, name, namespace, lambda column: by_header[column.header], lambda: dict(manifest))
