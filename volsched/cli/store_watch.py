"""`volsched get -w` on a store: prints changes as they are committed."""

from dataclasses import dataclass

from volsched.cli.kind_names import NamedObject
from volsched.cli.object_source import has_labels
from volsched.cli.output import Sheet
from volsched.kube.selectors import LabelSelector
from volsched.log.commit_signal import commits
from volsched.log.database import Database
from volsched.log.events.streams import noun_and_key
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import state_as_of, tail
from volsched.questions.get.object_rows import ObjectRow, state_row
from volsched.runtime.clock import system_clock

LOOK_SECONDS = 1.0
"""A signal is a hint: the log is read from time to time anyway."""
CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class StoreWatch:
    database: Database
    request: NamedObject
    labels: LabelSelector | None
    sheet: Sheet

    def follow(self, position: int) -> None:
        # Listens before it reads, so that a commit in between is noticed.
        signal = commits(self.database)
        try:
            while True:
                after = self._print_changes(position)
                if after == position:
                    signal.heard(LOOK_SECONDS)
                position = after
        finally:
            signal.close()

    def _print_changes(self, position: int) -> int:
        """Print the objects that changed after a position, as they are now; returns the last position read."""
        noun = self.request.named.noun
        with self.database.read() as connection:
            events = tail(connection, after=position, limit=CHUNK)
            view = view_at_head(connection)
            for stream in dict.fromkeys(it.stream for it in events if noun_and_key(it.stream)[0] == noun):
                key = noun_and_key(stream)[1]
                state = view.one(noun, key)
                gone = state is None
                if gone:
                    last = max(it.position for it in events if it.stream == stream)
                    state = state_as_of(connection, stream, position=last - 1)
                if state is None:
                    continue
                row = state_row(noun, key, state, now=system_clock(), view=view)
                if self._is_requested(row):
                    self.sheet.print([row], gone=gone)
        return events[-1].position if events else position

    def _is_requested(self, row: ObjectRow) -> bool:
        if self.request.keys:
            return row.key in self.request.keys
        if self.request.namespace is not None and row.namespace != self.request.namespace:
            return False
        return self.labels is None or has_labels(row, self.labels)
