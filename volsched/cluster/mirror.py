"""The mirror: keeps our views equal to a foreign cluster, by writing its observed changes into the log.

Every change becomes one event of the object's stream, and the affected bindings advance in the same transaction,
so no polling for bound claims is needed. Duplicate and late changes write nothing, because an object's version is
compared under the head lock. So several mirrors may run, and another one continues when one stops.

Every kind has its own cursor, and versions are compared within a kind only. A list is recorded page by page and
never held in memory: only its keys are kept, to find deleted objects at its end.

The cursors are kept in memory only. A restart lists everything again, which compares uid and version of each
object and writes nothing for unchanged ones. Stored cursors would have to be written with every batch, and would
have expired (`ExpiredError`) after all but the shortest restarts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from volsched.binding.rules.saga import advance
from volsched.cluster.port import (
    NOTHING_KNOWN,
    Cluster,
    ClusterError,
    ExpiredError,
    KnownVersions,
    Manifest,
    PortChange,
    UnansweredError,
)
from volsched.cluster.projection import Projection, everything, without_readiness
from volsched.kube.kinds import key_of
from volsched.kube.manifest import metadata, spec
from volsched.log.batch import declare_format
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.errors import ConnectionLostError
from volsched.log.events.streams import NOUN_OF_KIND, stream_of
from volsched.log.observed_cluster import observed_pod_keys, observed_versions, write_observed_pods
from volsched.log.reactions import Reaction
from volsched.log.reads.lookups import keys_of
from volsched.log.transaction import execute
from volsched.objects.observations import Fact, record_fact

NOT_MIRRORED = frozenset({"Event"})
"""Kinds that are not mirrored: events of the foreign cluster are for its own users."""
KINDS_MIRRORED = tuple(kind for kind in NOUN_OF_KIND if kind not in NOT_MIRRORED)
BATCH = 200
"""Changes per transaction: enough to share the commit, few enough not to hold the head lock for long."""
BATCHES_A_STEP = 5
"""Batches of a watch per step: rows beside the log are written once for all, so a lagging mirror catches up."""
MOST_GONE = 10_000


@dataclass(frozen=True, slots=True)
class Relist:
    """A kind was listed: single changes between the two cursors are unknown, only the result is known."""

    kind: str
    before: int | None
    """The cursor before; None: this process had not listed the kind yet."""
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """The versions of a kind went back: the cluster was restored from a backup, or replaced."""

    kind: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorProgress:
    observed: int = 0
    """The number of changes that were new to the store."""
    relisted: bool = False
    relists: tuple[Relist, ...] = field(default=(), compare=False)
    restored: Restoration | None = None
    refused: Mapping[str, Exception] = field(default_factory=dict)
    """Stream → why its change could not be stored; the stored object is stale until its next change."""
    unanswered: str | None = None
    """Why nothing could be observed or stored; the next step retries from the same cursors."""

    def __bool__(self) -> bool:
        return bool(self.observed or self.relisted or self.refused)

    def __add__(self, other: "MirrorProgress") -> "MirrorProgress":
        return MirrorProgress(
            observed=self.observed + other.observed,
            relisted=self.relisted or other.relisted,
            relists=self.relists + other.relists,
            restored=other.restored or self.restored,
            refused={**self.refused, **other.refused},
            unanswered=other.unanswered or self.unanswered,
        )


@dataclass(frozen=True, slots=True)
class PodRows:
    """Rows of observed pods to write: whole pods without claims, and the present state of pods with claims."""

    plain: dict[str, Manifest] = field(default_factory=dict)
    logged: dict[str, Manifest] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.plain or self.logged or self.gone)

    def put(self, among: dict[str, Manifest], key: str, manifest: Manifest) -> None:
        self.remove(key)
        del self.gone[key]
        among[key] = manifest

    def remove(self, key: str) -> None:
        self.plain.pop(key, None)
        self.logged.pop(key, None)
        self.gone[key] = None


@dataclass(slots=True)
class Mirror:
    database: Database
    cluster: Cluster
    kinds: tuple[str, ...] = KINDS_MIRRORED
    actor: str = "mirror"
    react: Reaction = advance
    batch: int = BATCH
    project: Projection = everything
    """The projection of objects before they are stored."""
    only_observes: bool = False
    """This process never writes to the cluster, so version changes alone and pods without claims are no events."""
    reached: dict[str, int] = field(default_factory=dict)
    """Kind → its last known version, perhaps from an earlier process."""
    _cursors: dict[str, str] = field(default_factory=dict)
    """Kind → the cursor of its watch; a kind without one is listed."""
    _listed: dict[str, int] = field(default_factory=dict)
    """Kind → the version of its list; older changes are part of the list."""
    _gone: dict[str, int] = field(default_factory=dict)
    """Stream → the version of its deletion: views have no deleted objects, and a watch may report one again."""
    versions: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """Kind → key → uid and version, if the cluster is only observed; includes versions without an event."""
    trusts_store: bool = False
    """The store was written with this projection, so objects at their stored version are not read again."""
    _reasons: dict[str, str] = field(default_factory=dict)
    """Kind → why it is listed again."""
    _behind: frozenset[str] = frozenset()
    """Kinds whose last list was older than their known version."""
    _reset: set[str] = field(default_factory=set)
    """Kinds whose versions restart with their next list."""
    _rows: set[str] | None = None
    """Keys of the pods that are stored beside the log only; None: to be read again."""
    _logged: set[str] = field(default_factory=set)
    """Keys of the pods that are objects of the log."""
    _is_declared: bool = False
    """Whether the store declares that its data may be packed."""

    def step(self, now: int) -> MirrorProgress:
        """Process a few batches of a watch, or list every kind that has no cursor."""
        unlisted = [kind for kind in self.kinds if kind not in self._cursors]
        if unlisted:
            return self._relist(unlisted, now)
        try:
            return self._watch(now)
        except (ClusterError, ConnectionLostError) as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> MirrorProgress:
        if isinstance(error, ExpiredError):
            self._cursors.pop(error.kind, None)
            self._reasons[error.kind] = str(error)
            return MirrorProgress(relisted=True)
        # The keys of pods in and beside the log are read again: half of a batch may have been written.
        self._rows = None
        return MirrorProgress(unanswered=str(error))

    @property
    def is_listed(self) -> bool:
        """Whether this process has listed every kind."""
        return set(self.kinds) <= self._listed.keys()

    @property
    def is_to_list(self) -> bool:
        """Whether the next step lists a kind."""
        return any(kind not in self._cursors for kind in self.kinds)

    def list_again(self, kind: str, reason: str) -> None:
        """List the kind again with the next step."""
        self._cursors.pop(kind, None)
        self._reasons[kind] = reason

    def _watch(self, now: int) -> MirrorProgress:
        watched = self.cluster.watch(self._cursors, limit=self.batch * BATCHES_A_STEP)
        news = [change for change in watched.changes if not self._is_old(change)]
        progress = self._record(news, now)
        # Noted after the transaction: had it failed, the same changes would be delivered again.
        self._gone |= {_stream(it): int(it.version) for it in news if it.manifest is None}
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._cursors = dict(watched.cursors)
        self.reached |= {kind: int(cursor) for kind, cursor in self._cursors.items()}
        return progress

    def _relist(self, kinds: Sequence[str], now: int) -> MirrorProgress:
        """List these kinds. A complete list keeps its cursor and is reported even if the next one fails."""
        progress = MirrorProgress()
        for kind in kinds:
            try:
                progress += self._relist_kind(kind, now) + MirrorProgress(relisted=True)
            except (ClusterError, ConnectionLostError) as error:
                return progress + self._failed(error)
            if progress.restored is not None:
                self._restart()
                break
        return progress

    def _relist_kind(self, kind: str, now: int) -> MirrorProgress:
        progress, present, cursor = MirrorProgress(), set[str](), None
        known = self._versions_of(kind)
        last = self._last_recorded(kind)
        older: list[PortChange] = []
        for page in self.cluster.list(kind, known):
            listed = [_listed_change(kind, key_of(kind, manifest), manifest) for manifest in page.objects]
            news: list[PortChange] = []
            for change in listed:
                # A lagging replica lists objects that are known at a later version, or known to be deleted.
                (news if int(change.version) >= last(change) else older).append(change)
            progress += self._record(news, now)
            present.update(change.key for change in listed)
            present.update(page.unchanged)
            cursor = page.cursor
        if cursor is None:
            raise UnansweredError(f"the list of {kind} ended before its last page")
        before = self.reached.get(kind)
        if before is not None and int(cursor) < before:
            return progress + self._went_back(kind, before, int(cursor))
        for change in older:
            # An up-to-date list has no object at an earlier version than the recorded one.
            if last(change) <= int(cursor):
                return progress + self._went_back(kind, last(change), int(change.version))
        missing = [PortChange(kind, key, None, cursor) for key in self._known_keys(kind) if key not in present]
        progress += self._record(missing, now)
        reason = self._reasons.pop(kind, "the follower was started")
        progress += MirrorProgress(relists=(Relist(kind, before, int(cursor), reason),))
        self._reset.discard(kind)
        self._behind -= {kind}
        self._listed[kind] = self.reached[kind] = int(cursor)
        # Deletions before the list are older than it.
        prefix = f"{NOUN_OF_KIND[kind]}/"
        self._gone = {stream: version for stream, version in self._gone.items() if not stream.startswith(prefix)}
        self._cursors[kind] = cursor
        return progress

    def _versions_of(self, kind: str) -> KnownVersions:
        """Objects that the list may skip if unchanged; none if versions restarted or are recorded themselves."""
        if not self.only_observes or kind in self._reset:
            return NOTHING_KNOWN
        if self.trusts_store and kind not in self.versions:
            with self.database.read() as connection:
                self.versions[kind] = observed_versions(connection, kind)
        # A copy, because versions are updated while the list is read.
        return dict(self.versions.get(kind, NOTHING_KNOWN))

    def _last_recorded(self, kind: str) -> Callable[[PortChange], int]:
        """The last recorded version of an object or of its deletion; 0 where versions restart."""
        if kind in self._reset:
            return lambda _: 0
        if kind in self.versions:
            known = {key: int(version) for key, (_, version) in self.versions[kind].items()}
        else:
            with self.database.read() as connection:
                known = {key: int(version) for key, (_, version) in observed_versions(connection, kind).items()}
        return lambda change: max(known.get(change.key, 0), self._gone.get(_stream(change), -1) + 1)

    def _went_back(self, kind: str, before: int, after: int) -> MirrorProgress:
        """A list may come from a stale cache. If the next one is behind too, the cluster itself was restored."""
        if kind in self._behind:
            return MirrorProgress(restored=Restoration(kind, before, after))
        self._behind |= {kind}
        raise UnansweredError(f"the list of {kind} went back from version {before} to {after}; listing again")

    def _restart(self) -> None:
        """Versions after the backup are invalid: list everything again, ignoring the known versions."""
        self._reset = set(self.kinds)
        self._reasons = dict.fromkeys(self.kinds, "the cluster was restored from a backup")
        self._behind = frozenset()
        for known in (self._cursors, self._listed, self._gone, self.reached, self.versions):
            known.clear()

    def _is_old(self, change: PortChange) -> bool:
        return int(change.version) <= self._listed.get(change.kind, 0) or self._is_gone(change)

    def _is_gone(self, change: PortChange) -> bool:
        return int(change.version) <= self._gone.get(_stream(change), 0)

    def _known_keys(self, kind: str) -> list[str]:
        with self.database.read() as connection:
            beside = observed_pod_keys(connection) if kind == "Pod" and self.only_observes else []
            return [*keys_of(connection, NOUN_OF_KIND[kind]), *beside]

    def _record(self, news: Sequence[PortChange], now: int) -> MirrorProgress:
        observed, refused = 0, {}
        changes = [change for it in news if (change := self._projected(it)) is not None]
        logged, rows = changes, PodRows()
        if self.only_observes:
            logged, rows = self._beside_the_log(changes)
            in_the_log = {it.key for it in logged if it.kind == "Pod"}
            observed = len(rows.plain) + len(rows.gone.keys() - in_the_log)
        if logged and not self._is_declared:
            declare_format(self.database)
            self._is_declared = True
        for start in range(0, len(logged), self.batch):
            part = logged[start : start + self.batch]
            commands = [self._command(it) for it in part]
            outcomes = execute(self.database, commands, now=now, react=self.react, packs=True)
            for change, outcome in zip(part, outcomes, strict=True):
                if isinstance(outcome, Done):
                    observed += bool(outcome.events)
                else:
                    refused[_stream(change)] = outcome
        if self.only_observes:
            # Noted after the transactions: had one failed, a list would skip these as known.
            if rows:
                write_observed_pods(self.database, {**rows.plain, **rows.logged}, rows.gone)
            self._note_versions(it for it in changes if _stream(it) not in refused)
        return MirrorProgress(observed=observed, refused=refused)

    def _projected(self, change: PortChange) -> PortChange | None:
        if change.manifest is None:
            return change
        kept = self.project(change.kind, change.manifest)
        if kept is None or kept is change.manifest:
            return None if kept is None else change
        return replace(change, manifest=kept)

    def _note_versions(self, changes: Iterable[PortChange]) -> None:
        for change in changes:
            known = self.versions.setdefault(change.kind, {})
            if change.manifest is None:
                known.pop(change.key, None)
            else:
                known[change.key] = (str(metadata(change.manifest).get("uid", "")), change.version)

    def _beside_the_log(self, changes: Sequence[PortChange]) -> tuple[list[PortChange], "PodRows"]:
        """The changes that belong in the log, and the rows of pods beside it."""
        logged: list[PortChange] = []
        rows = PodRows()
        if self._rows is None:
            with self.database.read() as connection:
                self._logged = set(keys_of(connection, NOUN_OF_KIND["Pod"]))
                self._rows = set(observed_pod_keys(connection)) - self._logged
        for change in changes:
            if change.kind != "Pod":
                logged.append(change)
            elif change.manifest is None:
                rows.remove(change.key)
                if change.key not in self._rows:
                    logged.append(change)
                self._rows.discard(change.key)
                self._logged.discard(change.key)
            elif _uses_claims(change.manifest):
                rows.put(rows.logged, change.key, change.manifest)
                logged.append(replace(change, manifest=without_readiness(change.manifest)))
                self._rows.discard(change.key)
                self._logged.add(change.key)
            else:
                # An earlier pod of that name may have had claims.
                if change.key in self._logged:
                    logged.append(replace(change, manifest=None))
                rows.put(rows.plain, change.key, change.manifest)
                self._rows.add(change.key)
                self._logged.discard(change.key)
        return logged, rows

    def _command(self, change: PortChange) -> Command:
        fact = Fact(
            change.kind,
            change.key,
            change.manifest,
            int(change.version),
            is_reset=change.kind in self._reset,
            tells_version=not self.only_observes,
            is_news_at_same_version=self.only_observes and not self.trusts_store,
        )
        return record_fact(fact, actor=self.actor)


def _stream(change: PortChange) -> str:
    return stream_of(change.kind, change.key)


def _uses_claims(pod: Manifest) -> bool:
    return any("persistentVolumeClaim" in it or "ephemeral" in it for it in spec(pod).get("volumes") or ())


def _listed_change(kind: str, key: str, manifest: Manifest) -> PortChange:
    return PortChange(kind, key, manifest, str(metadata(manifest)["resourceVersion"]))
