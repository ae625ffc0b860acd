"""Where `get` finds objects. Here: in the answers of the registry, about a store now or about the past."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from volsched.cli import console
from volsched.cli.kind_names import NamedObject, words_of
from volsched.cli.moment_option import local_time
from volsched.cli.output import Sheet
from volsched.cli.question_command import Client, parameters_for
from volsched.kube.manifest import metadata
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.log.events.streams import Named
from volsched.questions.get.object_rows import ObjectRow
from volsched.questions.registry import question


class ObjectSource(Protocol):
    def every(self, request: NamedObject) -> Sequence[ObjectRow]: ...

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        """Raises UnknownError, with similar names, if it does not exist."""
        ...

    def watch(self, request: NamedObject, sheet: Sheet) -> None:
        """Print later changes, until Ctrl-C, which is the normal end of a watch."""
        ...


@dataclass(slots=True)
class RegistryObjects:
    client: Client
    as_of: str | None
    labels: LabelSelector | None
    _position: int = 0

    def every(self, request: NamedObject) -> Sequence[ObjectRow]:
        scope = parameters_for("get", kind=request.named.plural, namespace=request.namespace, as_of=self.as_of)
        answer = self.client.objects(question("get"), scope)
        self._position = answer.position
        if answer.begins is not None:
            console.stderr.print(
                f"the log begins at {local_time(answer.begins)}, and knows nothing of the time before"
            )
        return answer.rows if self.labels is None else [it for it in answer.rows if has_labels(it, self.labels)]

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        scope = parameters_for("get object", **words_of(named, key), as_of=self.as_of)
        answer = self.client.objects(question("get object"), scope)
        self._position = answer.position
        return answer.rows

    def watch(self, request: NamedObject, sheet: Sheet) -> None:
        from volsched.cli.store_client import StoreClient
        from volsched.cli.store_watch import StoreWatch

        # Only a store can be here: the past does not change, and ServedObjects watches the present of a server.
        assert isinstance(self.client, StoreClient)
        database = self.client.whole_store()
        assert database is not None
        StoreWatch(database, request, self.labels, sheet).follow(self._position)


def has_labels(row: ObjectRow, labels: LabelSelector) -> bool:
    return label_selector_matches(labels, metadata(row.manifest()).get("labels", {}))
