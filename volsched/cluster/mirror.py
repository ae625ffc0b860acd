"""The mirror: keeps our views equal to a foreign cluster, by writing what is observed there into the log.

Every change becomes one event of the object's stream, and the bindings it concerns move on in the same
transaction: no one has to ask whether a claim is bound by now. What is told twice or late is no event, because an
object's version is compared under the head lock; so there may be several mirrors, and one that stops anywhere is
taken up by the next.

The cursor of the watch is kept in memory only. A restart lists everything anew, which costs one comparison per
object and writes nothing for those that did not change; a stored cursor would have to be written with every batch,
and would be too old (`ExpiredError`) after all but the shortest restarts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from volsched.binding.rules.saga import advance
from volsched.cluster.port import Cluster, ExpiredError, PortChange, UnansweredError
from volsched.kube.kinds import key_of
from volsched.kube.manifest import metadata
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.errors import ConnectionLostError
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.log.reactions import Reaction
from volsched.log.reads.lookups import keys_of
from volsched.log.transaction import execute
from volsched.objects.observations import Fact, record_fact

NOT_MIRRORED = frozenset({"Event"})
"""What the foreign cluster tells its own users; our notices are not its business, nor are its ours."""
KINDS_MIRRORED = tuple(kind for kind in NOUN_OF_KIND if kind not in NOT_MIRRORED)
BATCH = 200
"""Changes per transaction: enough to share the commit, few enough not to hold the head lock for long."""
MOST_GONE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorProgress:
    observed: int = 0
    """Changes that were news."""
    relisted: bool = False
    refused: Mapping[str, Exception] = field(default_factory=dict)
    """Stream → why its change could not be stored; the object stays as it was until it changes again."""
    unanswered: str | None = None
    """Why nothing could be observed, or stored; the next step tries again from where this one began."""

    def __bool__(self) -> bool:
        return bool(self.observed or self.relisted or self.refused)


@dataclass(slots=True)
class Mirror:
    database: Database
    cluster: Cluster
    kinds: tuple[str, ...] = KINDS_MIRRORED
    actor: str = "mirror"
    react: Reaction = advance
    batch: int = BATCH
    _cursor: str | None = None
    _listed: dict[str, int] = field(default_factory=dict)
    """Kind → the version of its list; what is older was in it, or gone before it."""
    _gone: dict[str, int] = field(default_factory=dict)
    """Stream → the version of its deletion: the views do not know what is deleted, a watch may tell it again."""

    def step(self, now: int) -> MirrorProgress:
        """One batch of a watch, or a list of everything where there is nothing to watch from."""
        try:
            return self._watch(now, self._cursor) if self._cursor is not None else self._relist(now)
        except ExpiredError:
            self._cursor = None
            return MirrorProgress(relisted=True)
        except (UnansweredError, ConnectionLostError) as error:
            return MirrorProgress(unanswered=str(error))

    def _watch(self, now: int, cursor: str) -> MirrorProgress:
        watched = self.cluster.watch(cursor=cursor, limit=self.batch)
        news = [change for change in watched.changes if change.kind in self.kinds and not self._is_old(change)]
        progress = self._record(news, now)
        # Only now: had the transaction failed, the same changes would be told again.
        self._gone |= {_stream(it): int(it.version) for it in news if it.manifest is None}
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._cursor = watched.cursor
        return progress

    def _relist(self, now: int) -> MirrorProgress:
        lists = {kind: self.cluster.list(kind) for kind in self.kinds}
        changes: list[PortChange] = []
        for kind, listed in lists.items():
            found = {key_of(kind, manifest): manifest for manifest in listed.objects}
            changes += [
                PortChange(kind, key, manifest, str(metadata(manifest)["resourceVersion"]))
                for key, manifest in found.items()
            ]
            changes += [
                PortChange(kind, key, None, listed.cursor) for key in self._known(kind) if key not in found
            ]
        progress = self._record(changes, now)
        self._listed = {kind: int(listed.cursor) for kind, listed in lists.items()}
        self._gone.clear()
        # From the oldest of them: changes that a later list held already are told again, and are no news.
        self._cursor = min((listed.cursor for listed in lists.values()), key=int)
        return MirrorProgress(observed=progress.observed, relisted=True, refused=progress.refused)

    def _is_old(self, change: PortChange) -> bool:
        return int(change.version) <= max(self._listed.get(change.kind, 0), self._gone.get(_stream(change), 0))

    def _known(self, kind: str) -> list[str]:
        with self.database.read() as connection:
            return keys_of(connection, NOUN_OF_KIND[kind])

    def _record(self, changes: Sequence[PortChange], now: int) -> MirrorProgress:
        observed, refused = 0, {}
        for start in range(0, len(changes), self.batch):
            part = changes[start : start + self.batch]
            outcomes = execute(self.database, [self._command(it) for it in part], now=now, react=self.react)
            for change, outcome in zip(part, outcomes, strict=True):
                if isinstance(outcome, Done):
                    observed += bool(outcome.events)
                else:
                    refused[_stream(change)] = outcome
        return MirrorProgress(observed=observed, refused=refused)

    def _command(self, change: PortChange) -> Command:
        fact = Fact(change.kind, change.key, change.manifest, int(change.version))
        return record_fact(fact, actor=self.actor)


def _stream(change: PortChange) -> str:
    return stream_of(change.kind, change.key)
