"""Nothing that grows with the work is kept for ever: Kubernetes events, idempotency keys, finished effects.

The log has its own retention (`volsched retention`), because people decide how long a history is worth keeping.
What is forgotten here is of no use to anybody after its time, so it needs no decision and nobody to run a command.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from volsched.binding.rules.rollback_request import REQUESTED
from volsched.kube.manifest import uid
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.object_states import living, manifest_of
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.log.retention.expiry import expire_commands, expire_done, old_notices
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World

DAY = 86_400 * SECOND
EVERY = 60 * SECOND
BATCH = 500
MEMORIES = frozenset({REQUESTED})
"""Events that are counted by those who tell them: they stay as long as the object they are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """For how long, in microseconds."""

    notices: int = DAY
    commands: int = 7 * DAY
    done: int = 30 * DAY


DEFAULT_KEEP = Keep()


@dataclass(slots=True)
class Expiry:
    database: Database
    world: World
    owner: str
    keep: Keep = DEFAULT_KEEP
    _due: int = 0

    def update(self, streams: Iterable[str], now: int) -> None:
        """Only time makes something old."""

    def step(self, now: int) -> int:
        """A batch of each; the next at once while there is more, else in a minute."""
        if now < self._due:
            return 0
        found = self._expire_notices(now)
        found += expire_commands(self.database, before=now - self.keep.commands)
        found += expire_done(self.database, before=now - self.keep.done)
        if found == 0:
            self._due = now + EVERY
        return found

    def next_due(self) -> int | None:
        """Nobody waits for it."""
        return None

    def _expire_notices(self, now: int) -> int:
        with self.database.read() as connection:
            # What is remembered is found again every time; there are few of those among a batch.
            old = old_notices(connection, before=now - self.keep.notices, limit=2 * BATCH)
        commands = list(self._deleting((f"notice/{it.key}" for it in old), now))[:BATCH]
        execute(self.database, commands, now=now)
        return len(commands)

    def _deleting(self, streams: Iterable[str], now: int) -> Iterator[Command]:
        for stream in streams:
            state = living(self.world.states, stream)
            if state is not None and state.manifest is not None and not self._is_remembered(stream):
                yield door.delete_seen("Event", state, door.controller(self.owner, now)).command

    def _is_remembered(self, stream: str) -> bool:
        manifest = manifest_of(self.world.states, stream) or {}
        about = manifest.get("involvedObject") or {}
        if manifest.get("reason") not in MEMORIES or about.get("kind") not in NOUN_OF_KIND:
            return False
        key = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        of = manifest_of(self.world.states, stream_of(about["kind"], key))
        return of is not None and uid(of) == about.get("uid")
