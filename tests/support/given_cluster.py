"""A cluster that is what a test says: raw manifests, any versions, any identity. Nothing of it is validated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.store_samples import NOW
from volsched.cluster.kubernetes.metadata_proof import ObjectVersion
from volsched.cluster.observer import ClusterObserver
from volsched.cluster.port import (
    KUBERNETES,
    NOTHING_KNOWN,
    Capabilities,
    ClusterIdentity,
    Cursors,
    ExpiredError,
    KnownVersions,
    ListPage,
    Manifest,
    Permission,
    PortChange,
    UnansweredError,
    Watched,
)
from volsched.kube.kinds import KINDS, key_of


@dataclass
class GivenCluster:
    """The port's reading half; `put` and `drop` are somebody else's writes."""

    uid: str = "cluster-1"
    head: int = 0
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    told: list[PortChange] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    """Kinds whose next list gets no answer."""
    reachable: bool = True
    """Whether it says who it is."""
    decoded: int = 0
    """Objects of lists that were told whole."""

    @property
    def capabilities(self) -> Capabilities:
        return KUBERNETES

    def put(self, kind: str, manifest: dict[str, Any]) -> None:
        self.head += 1
        key = key_of(kind, manifest)
        names = {"uid": f"uid-{kind}-{key}", **manifest["metadata"], "resourceVersion": str(self.head)}
        whole = {"apiVersion": KINDS[kind].api_version, "kind": kind, **manifest, "metadata": names}
        self.objects[kind, key] = whole
        self.told.append(PortChange(kind, key, whole, str(self.head)))

    def drop(self, kind: str, key: str) -> None:
        self.head += 1
        del self.objects[kind, key]
        self.told.append(PortChange(kind, key, None, str(self.head)))

    def restore(self, backup: dict[tuple[str, str], dict[str, Any]], head: int) -> None:
        """From a backup: what came after never was, and every watch from then is refused."""
        self.objects, self.head, self.told = dict(backup), head, []
        self.expired = set(KINDS)

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        may = dict.fromkeys(permissions, True)
        return ClusterIdentity(uid=self.uid, version="1.37", url="given", reachable=self.reachable, may=may)

    def get(self, kind: str, key: str) -> Manifest | None:
        return self.objects.get((kind, key))

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        if kind in self.unanswered:
            self.unanswered.discard(kind)
            raise UnansweredError(f"no answer to the list of {kind}")
        self.expired.discard(kind)
        there = {key: it for (of, key), it in self.objects.items() if of == kind}
        unchanged = {
            key
            for key, it in there.items()
            if known.get(key) == (it["metadata"]["uid"], it["metadata"]["resourceVersion"])
        }
        self.decoded += len(there) - len(unchanged)
        objects = tuple(it for key, it in there.items() if key not in unchanged)
        yield ListPage(objects, str(self.head), unchanged=tuple(unchanged))

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:  # noqa: ARG002 - tells all at once
        for kind in cursors:
            if kind in self.expired:
                raise ExpiredError(kind, f"the cursor of {kind} is too old")
        news = [it for it in self.told if it.kind in cursors and int(it.version) > int(cursors[it.kind])]
        return Watched(tuple(news), dict.fromkeys(cursors, str(self.head)))

    def versions(self, kind: str) -> Iterator[tuple[tuple[ObjectVersion, ...], str | None]]:
        found = [(key, it["metadata"]) for (of, key), it in self.objects.items() if of == kind]
        yield tuple(ObjectVersion(key, it["uid"], it["resourceVersion"]) for key, it in found), str(self.head)

    def refused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an observer wrote to the cluster")

    create = update = patch = delete = bind_pod = unassign_pod = refused


def settle(observer: ClusterObserver, now: int = NOW) -> None:
    while observer.step(now):
        pass
