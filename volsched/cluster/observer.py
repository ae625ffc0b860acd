"""The observer: keeps a store equal to a foreign cluster that it may only read, and records gaps in its knowledge.

It runs only a mirror: no scheduler, no executor, no controller. The identity of the cluster, every gap in the
observed history, and a restored cluster are events of the log, because answers about the past depend on them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.cluster.kubernetes.metadata_proof import Drift, ObjectVersion, compare
from volsched.cluster.mirror import Mirror, MirrorProgress, Relist
from volsched.cluster.port import Cluster, ClusterError, ClusterIdentity
from volsched.cluster.projection import OBSERVED_KINDS, fingerprint, project
from volsched.log.database import Database
from volsched.log.observed_cluster import (
    ATTACHED,
    DRIFT,
    GAP,
    RESTORED,
    KnownCursor,
    attached_cluster,
    known_cursors,
    note,
    note_cursors,
    note_projection,
    require_mode,
    stored_projection,
)
from volsched.log.reads.tail import read_head
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND

_log = logging.getLogger("volsched.observer")
NOTE_EVERY = 5 * SECOND
"""Interval between two writes of the cursors. The reported start of a gap may be early by this much."""
NOTE_NEWS_EVERY = 1 * SECOND
"""The same while objects change: the absence of changes is only proven up to the last write."""
PROOF_EVERY = 3_600 * SECOND
PROOF_PAUSE = 10 * SECOND
"""Pause between two kinds of a round: a list of all metadata is expensive for a server."""
DRIFT_LASTS = 60 * SECOND
DRIFT_SHOWN = 20
TROUBLE_LASTS = 10 * SECOND
ACTOR = "observer"
VersionLists = Callable[[str], Iterator[tuple[tuple[ObjectVersion, ...], str | None]]]


class WrongClusterError(ClusterError):
    """The store belongs to another cluster, or to none; the message has the remedy."""


@dataclass(slots=True)
class ClusterObserver:
    database: Database
    cluster: Cluster
    silence: Callable[[], Mapping[str, float | None]] = dict
    """Kind → seconds that its watch has been silent, where known; None: it has not been opened yet."""
    trouble: Callable[[], str | None] = lambda: None
    """Why a kind cannot be watched now, and the remedy."""
    list_versions: VersionLists | None = None
    """Lists key, uid and version of every object of a kind, for the proof of equality."""
    mode: str | None = None
    """The mode in which this process acts on the cluster; None: it only observes."""
    mirror: Mirror = field(init=False)
    _known: dict[str, KnownCursor] = field(default_factory=dict)
    """Kind → the last stored cursor, perhaps of an earlier process."""
    _listed_at: dict[str, int] = field(default_factory=dict)
    """Kind → when this process last listed it, which counts as a report even if the watch is silent."""
    _noted_at: int = 0
    _proof_at: int | None = None
    """When the next kind is compared."""
    _unproven: tuple[str, ...] = ()
    """Kinds that are still to be compared in this round."""
    _suspected: dict[str, tuple[Drift, int]] = field(default_factory=dict)
    """Kind → the differences, and when they were found."""
    _is_attached: bool = False
    _was_attached: bool = False
    """Whether the store was attached before this process began."""
    _is_identified: bool = False
    """Whether the cluster was identified just before this step."""
    _left_out: dict[str, str] = field(default_factory=dict)
    """Stream → why the object's present state could not be stored; logged once."""
    _troubled_since: int | None = None
    _is_trouble_logged: bool = False

    def __post_init__(self) -> None:
        self.mirror = Mirror(
            self.database,
            self.cluster,
            kinds=OBSERVED_KINDS,
            actor=ACTOR,
            project=project,
            only_observes=self.mode is None,
        )

    def attach(self, identity: ClusterIdentity, now: int) -> None:
        """Attach the store to the cluster, or continue with it; raises WrongClusterError for another cluster."""
        with self.database.read() as connection:
            attached, head = attached_cluster(connection), read_head(connection).position
            self._known = known_cursors(connection)
            self.mirror.trusts_store = stored_projection(connection) == fingerprint()
        if attached is None and head > 0:
            raise WrongClusterError(
                "the store has objects of its own, and a store that follows a cluster must not; name another "
                "with --db"
            )
        _compare(attached, identity)
        decided = None if attached is None else attached.get("mode")
        if self.mode is not None:
            require_mode(decided, self.mode)
        self._was_attached = attached is not None
        attachment = {"uid": identity.uid, "version": identity.version, "url": identity.url}
        attachment["mode"] = self.mode or decided
        if attached is None or any(attached.get(name) != value for name, value in attachment.items()):
            self._note(ATTACHED, attachment, now)
        self.mirror.reached = {kind: it.cursor for kind, it in self._known.items()}
        self._is_attached = self._is_identified = True

    def step(self, now: int) -> int:
        """Process one batch; errors of the cluster show in `silence` and in the age of the cursors."""
        if not self._is_attached or (self.mirror.is_to_list and not self._is_identified):
            identity = self.cluster.describe()
            if not identity.reachable or identity.trouble is not None:
                # It is unknown to which cluster these objects would belong.
                self._log_trouble(identity.trouble or f"{identity.url} does not answer", now)
                return 0
            if self._is_attached:
                self._refuse_another(identity)
            else:
                self.attach(identity, now)
        self._is_identified = False
        progress = self.mirror.step(now)
        self._log_trouble(progress.unanswered or self.trouble(), now)
        self._log_left_out(progress.refused)
        if progress.restored is not None:
            self._note_restored(progress, now)
        for relist in progress.relists:
            self._note_gap(relist, now)
            self._listed_at[relist.kind] = now
        if progress.relists or now >= self._noted_at + (NOTE_NEWS_EVERY if progress.observed else NOTE_EVERY):
            self._note_cursors(now, heard=progress.unanswered is None)
        if progress.unanswered is None:
            self._note_projection(now)
            self._prove(now)
        return progress.observed + progress.relisted

    def _log_trouble(self, trouble: str | None, now: int) -> None:
        """Log trouble once when it lasts and once when it ends; a brief broken connection is not logged."""
        if trouble is None:
            if self._is_trouble_logged:
                _log.warning("the cluster answers again")
            self._troubled_since, self._is_trouble_logged = None, False
        elif self._troubled_since is None:
            self._troubled_since = now
        elif not self._is_trouble_logged and now >= self._troubled_since + TROUBLE_LASTS:
            _log.warning("%s (retried until it answers; at worst, the time until then is a gap)", trouble)
            self._is_trouble_logged = True

    def _log_left_out(self, refused: Mapping[str, Exception]) -> None:
        for stream, error in refused.items():
            if self._left_out.get(stream) != str(error):
                _log.warning("%s is left out until it changes, because it cannot be stored: %s", stream, error)
                self._left_out[stream] = str(error)

    def _refuse_another(self, identity: ClusterIdentity) -> None:
        """Raises before anything is listed again: a cluster that replaced ours may have any versions."""
        with self.database.read() as connection:
            _compare(attached_cluster(connection), identity)

    def _note_projection(self, now: int) -> None:
        """Record the projection once every kind was read with it, so that a restart skips unchanged objects."""
        if not self.mirror.trusts_store and self.mirror.is_listed:
            note_projection(self.database, fingerprint(), now)
            self.mirror.trusts_store = True

    def _prove(self, now: int) -> None:
        """Compare uids and versions of a kind with the cluster; a lasting difference is reported as a fault."""
        if self.list_versions is None or not self.mirror.reached:
            return
        if self._proof_at is None:
            self._proof_at = now + PROOF_EVERY
        for kind, (_, at) in list(self._suspected.items()):
            if now >= at + DRIFT_LASTS:
                self._compare_again(kind, now)
        if now < self._proof_at:
            return
        kind, *rest = self._unproven or self.mirror.kinds
        self._unproven = tuple(rest)
        self._proof_at = now + (PROOF_PAUSE if rest else PROOF_EVERY)
        # Only some of the cluster's events are kept.
        drift = Drift() if kind == "Event" else self._drift(kind)
        if drift:
            self._suspected[kind] = (drift, now)

    def _compare_again(self, kind: str, now: int) -> None:
        before, _ = self._suspected.pop(kind)
        drift = before.also_in(self._drift(kind))
        if not drift:
            return
        differences = {"missing": drift.missing, "left_over": drift.left_over, "stale": drift.stale}
        shown = {name: list(keys[:DRIFT_SHOWN]) for name, keys in differences.items()}
        self._note(DRIFT, {"kind": kind, **shown}, now)
        self.mirror.list_again(kind, "our objects differed from the cluster's")

    def _drift(self, kind: str) -> Drift:
        assert self.list_versions is not None
        listed: list[ObjectVersion] = []
        cursor: str | None = None
        try:
            for page, reached in self.list_versions(kind):
                listed += page
                cursor = reached
        except ClusterError:
            return Drift()
        known = self.mirror.versions.get(kind, {})
        return Drift() if cursor is None else compare(listed, known, cursor=cursor)

    def _note_restored(self, progress: MirrorProgress, now: int) -> None:
        """Record the restore; the cluster was identified as the same one before it was listed."""
        assert progress.restored is not None
        restored = progress.restored
        _log.warning(
            "the cluster was restored from a backup: versions of %s went back from %s to %s; all kinds are listed "
            "again, and changes after the backup are recorded as undone",
            restored.kind,
            restored.before,
            restored.after,
        )
        data = {"kind": restored.kind, "before": restored.before, "after": restored.after}
        self._note(RESTORED, data, now)

    def _note_gap(self, relist: Relist, now: int) -> None:
        """Record a gap. A store's first list is none, as nothing was known before; after a restore it is one."""
        known = self._known.pop(relist.kind, None)
        if relist.before is None and known is None and not self._was_attached:
            return
        data = {
            "kind": relist.kind,
            "before": relist.before,
            "after": relist.after,
            "since": None if known is None else known.heard_at,
            "reason": relist.reason,
        }
        self._note(GAP, data, now)

    def _note_cursors(self, now: int, *, heard: bool) -> None:
        self._noted_at = now
        if not heard or not self.mirror.reached:
            return
        silence = self.silence()
        for kind, cursor in self.mirror.reached.items():
            if kind not in self._listed_at:
                # The cursor and its report time are those of an earlier process.
                continue
            silent = silence.get(kind, 0.0)
            watched_at = 0 if silent is None else now - int(silent * SECOND)
            self._known[kind] = KnownCursor(cursor, max(watched_at, self._listed_at[kind]))
        note_cursors(self.database, {kind: (it.cursor, it.heard_at) for kind, it in self._known.items()})

    def _note(self, type_: str, data: Mapping[str, Any], now: int) -> None:
        (outcome,) = execute(self.database, [note(type_, data, actor=ACTOR)], now=now)
        if isinstance(outcome, Exception):
            raise outcome


def _compare(attached: Mapping[str, Any] | None, identity: ClusterIdentity) -> None:
    if attached is None or attached["uid"] is None or identity.uid is None or attached["uid"] == identity.uid:
        return
    raise WrongClusterError(
        f"the store mirrors cluster {attached['uid']} ({attached['url']}), and {identity.url} is cluster "
        f"{identity.uid} (the uid of its namespace kube-system): choose the context with --context, or a store of "
        "its own with --db"
    )
