"""Where `get` finds objects: what the registry answers, of a store now or of whatever as it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from volsched.cli import console
from volsched.cli.kind_names import NamedObject, words_of
from volsched.cli.moment_option import local_time
from volsched.cli.output import Sheet
from volsched.cli.question_command import Client, checked
from volsched.kube.manifest import metadata
from volsched.kube.selectors import LabelSelector, label_selector_matches
from volsched.log.events.streams import Named
from volsched.questions.get.object_rows import ObjectRow
from volsched.questions.registry import question


class ObjectSource(Protocol):
    def every(self, asked: NamedObject) -> Sequence[ObjectRow]: ...

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        """UnknownError, with what comes near, where it is not there."""
        ...

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        """Go on with what changes after that, until Ctrl-C, which is how a watch ends well."""
        ...


@dataclass(slots=True)
class AskedObjects:
    client: Client
    as_of: str | None
    labels: LabelSelector | None
    _position: int = 0

    def every(self, asked: NamedObject) -> Sequence[ObjectRow]:
        wanted = checked("get", kind=asked.named.plural, namespace=asked.namespace, as_of=self.as_of)
        answer = self.client.objects(question("get"), wanted)
        self._position = answer.position
        if answer.begins is not None:
            console.stderr.print(
                f"the log begins at {local_time(answer.begins)}, and knows nothing of the time before"
            )
        return answer.rows if self.labels is None else [it for it in answer.rows if has_labels(it, self.labels)]

    def one(self, named: Named, key: str) -> Sequence[ObjectRow]:
        wanted = checked("get object", **words_of(named, key), as_of=self.as_of)
        answer = self.client.objects(question("get object"), wanted)
        self._position = answer.position
        return answer.rows

    def watch(self, asked: NamedObject, sheet: Sheet) -> None:
        from volsched.cli.store_client import StoreClient
        from volsched.cli.store_watch import StoreWatch

        # The past does not change, and of the present a server is asked as Kubernetes' clients ask it.
        assert isinstance(self.client, StoreClient)
        database = self.client.whole_store()
        assert database is not None
        StoreWatch(database, asked, self.labels, sheet).follow(self._position)


def has_labels(row: ObjectRow, labels: LabelSelector) -> bool:
    return label_selector_matches(labels, metadata(row.manifest()).get("labels", {}))
