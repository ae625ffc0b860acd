"""The interface to a cluster, small enough for a real API server behind it, and the errors of its calls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

from volsched.kube.kinds import KINDS
from volsched.kube.meta import GATE
from volsched.log.commands import ConflictError, RejectedError
from volsched.log.events.streams import NAMED
from volsched.objects.rules.object_events import AlreadyExistsError, InvalidError, NotFoundError

# Every write is conditional on the version its writer saw (`metadata.resourceVersion`). Versions are decimal
# numbers that grow with every write of an object, its deletion and a later object of its name included. They are
# comparable **within one kind only**: a cluster may keep kinds in different stores.
#
# A failed call means one of two things: nothing was written (`CallRefusedError`), or the outcome is unknown
# (`UnansweredError`).

Manifest = Mapping[str, Any]
PLURALS = {**{named.title: named.plural for named in NAMED}, "Lease": "leases"}
"""Kind → its resource. A Lease is the only kind that is neither watched nor stored."""
KnownVersions = Mapping[str, tuple[str, str]]
"""Key → uid and version of every object of one kind that the caller already has."""
NOTHING_KNOWN: KnownVersions = MappingProxyType({})
Cursors = Mapping[str, str]
"""Kind → the version up to which it is known. Cursors come from lists, and from watches that continue them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The differences between clusters. A leg that cannot be undone is retained instead."""

    can_unbind: bool
    """Whether a claim's volumeName may be cleared."""
    has_data_state: bool
    """Whether claims are marked dirty before their volumes are mounted. Otherwise an unmarked claim is dirty."""
    can_unassign: bool
    """Whether a pod may be unassigned from its node."""
    is_own_log: bool = False
    """Whether the objects are in our own log: a write and its record are one transaction. Elsewhere writes are
    calls, and their results are observed (`cluster.mirror`)."""
    can_fence: bool = True
    """Whether a harmless conditional write makes a late write fail. Otherwise late writes are found and undone."""
    places_pods: bool = True
    """Whether we bind pods to nodes. Otherwise we bind only their claims, and remove our scheduling gate."""


KUBERNETES = Capabilities(can_unbind=False, has_data_state=False, can_unassign=False)
"""The capabilities of a real API server."""


class Refusal(StrEnum):
    CONFLICT = "conflict"
    """The object is at another version than the writer read, or is another object of that name."""
    NOT_FOUND = "not found"
    EXISTS = "already exists"
    INVALID = "invalid"
    """A retry of the same call will be refused again."""
    FORBIDDEN = "forbidden"
    """We lack a permission, or an admission policy refuses: an administrator has to act first."""


class ClusterError(Exception):
    """A call that failed."""


class CallRefusedError(ClusterError):
    """Nothing was written."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class UnansweredError(ClusterError):
    """The call may have been or may yet be executed: timeout, broken connection, overloaded server."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """The retry delay that the cluster requests, in seconds; the caller's own backoff may be longer."""


class ExpiredError(ClusterError):
    """The cursor of this kind, or its list in progress, is too old: list this kind again.

    Other kinds are not affected, and their cursors stay valid.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class PortChange:
    """The new state of an object; without a manifest, the object was deleted."""

    kind: str
    key: str
    manifest: Manifest | None
    version: str
    """The object's version, or that of its deletion, which identifies a late report of the deletion."""


@dataclass(frozen=True, slots=True)
class Watched:
    changes: tuple[PortChange, ...]
    cursors: Cursors
    """The cursors to continue from: one for every requested kind, whether it advanced or not."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list."""

    objects: tuple[Manifest, ...]
    cursor: str | None = None
    """Only on the last page: a watch from here misses no change after the list."""
    unchanged: tuple[str, ...] = field(default=(), kw_only=True)
    """Keys of objects at the version that the caller has; their manifests are left out."""


@dataclass(frozen=True, slots=True)
class WholeList:
    objects: tuple[Manifest, ...]
    cursor: str


def whole(pages: Iterable[ListPage]) -> WholeList:
    """A list in one piece, for kinds that are known to be small and for clusters that are read only once."""
    objects: list[Manifest] = []
    cursor: str | None = None
    for page in pages:
        objects += page.objects
        cursor = page.cursor
    if cursor is None:
        raise UnansweredError("the list ended without a version; list again")
    return WholeList(tuple(objects), cursor)


@dataclass(frozen=True, slots=True)
class Permission:
    """A verb of Kubernetes on a kind (`Pod`) or on a subresource of it (`binding`)."""

    verb: str
    kind: str
    subresource: str = ""
    group: str | None = None
    """The API group, if it is not the one that we read the kind from."""
    namespace: str = ""
    """The only namespace; empty: all namespaces."""
    name: str = ""
    """The only object; empty: all objects."""

    @property
    def api_group(self) -> str:
        return KINDS[self.kind].api_version.rpartition("/")[0] if self.group is None else self.group

    def __str__(self) -> str:
        return f"{self.verb} {self.kind}{'/' if self.subresource else ''}{self.subresource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The identity of a cluster, and our permissions there."""

    uid: str | None
    """The uid of the namespace kube-system, which exists as long as the cluster; None if it cannot be read. A
    store that mirrors one cluster must refuse another."""
    version: str | None
    """Major and minor, as `1.37`."""
    url: str
    reachable: bool = True
    trouble: str | None = None
    """Why the cluster cannot be reached or used, and the remedy."""
    may: Mapping[Permission, bool] = field(default_factory=dict)
    """The requested permissions. They do not show whether the kind is served."""
    unserved: tuple[str, ...] = ()
    """Kinds of the requested permissions that this server does not have."""
    warnings: tuple[str, ...] = ()
    """Problems that do not prevent the use: clocks that differ, an old server, an unverified server."""


class Cluster(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, permissions: Sequence[Permission] = ()) -> ClusterIdentity:
        """The cluster's identity, and which of these permissions we have. Errors are returned, not raised."""

    def get(self, kind: str, key: str) -> Manifest | None:
        """The present object, not that of a cache; None if it does not exist."""

    def list(self, kind: str, known: KnownVersions = NOTHING_KNOWN) -> Iterator[ListPage]:
        """The objects of a kind page by page, as of one moment; only the last page has the cursor.

        An object that still has the uid and version of `known` may be listed by its key alone.

        Before the last page, a missing object proves nothing. A list that cannot be finished raises, between any
        two pages, `ExpiredError` (start again, and drop the pages so far) or `UnansweredError`.
        """

    def watch(self, cursors: Cursors, *, limit: int = 1_000) -> Watched:
        """The changes since the cursors, per object in the order of its versions; they may be late or duplicate.

        It does not wait for changes. There is no order between kinds. With other cursors than those of its last
        answer, it continues from these: a caller that failed to process an answer repeats the call with old ones.
        `ExpiredError` names one kind; the others follow with the next call.
        """

    def create(self, kind: str, manifest: Manifest) -> Manifest: ...

    def update(self, kind: str, manifest: Manifest, *, status: bool = False) -> Manifest:
        """Replace the object, or its status alone, if it still has the manifest's resourceVersion.

        With `status`, labels and annotations must be those that were read: a real server writes them too.
        A manifest without a version is refused as INVALID before it is sent: a server would write it
        unconditionally. Removing the last finalizer of an object that is being deleted deletes it.
        """

    def patch(self, kind: str, key: str, patch: Manifest, *, version: str, status: bool = False) -> Manifest:
        """Merge the patch (RFC 7386) into the object, or into its status alone, if it is still at this version.

        CONFLICT at any other version, also where the patch would change nothing. A patch that changes nothing
        keeps the version.
        """

    def delete(self, kind: str, key: str, *, uid: str | None = None, version: str | None = None) -> None: ...

    def fence(self, kind: str, key: str, *, version: str, mark: str) -> Manifest:
        """Change only the version, so that a conditional write on `version` that is in flight must fail.

        `mark` must be new: a write that changes nothing would fence nothing. CONFLICT at any other version.
        """

    def set_condition(self, key: str, condition: Manifest, *, uid: str) -> None:
        """Set one condition of the pod, by its type; the others stay. INVALID if another pod has the name."""

    def create_event(self, event: Manifest) -> None:
        """Create a Kubernetes event (`events.k8s.io/v1`)."""

    def open_gate(self, key: str, pod: Manifest, *, annotations: Mapping[str, str] | None = None) -> Manifest:
        """Remove our scheduling gate, and nothing else, from the pod as read.

        CONFLICT if it is at another version, or has no such gate. `annotations` are added to the pod's; for that
        it must have been read completely.
        """

    def bind_pod(
        self, key: str, *, uid: str, version: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Assign a pod that has no node. `annotations` are merged into the pod's.

        CONFLICT if it has a node, this one included, is at another version, is being deleted, has scheduling
        gates, or is another pod of that name.
        """

    def unassign_pod(self, key: str, *, uid: str, reason: str) -> Manifest:
        """Take the pod off the node that rejected it; refused once any of its containers has started."""


# Errors of the clusters that we implement ourselves.

_REFUSALS: dict[type[RejectedError], Refusal] = {
    NotFoundError: Refusal.NOT_FOUND,
    AlreadyExistsError: Refusal.EXISTS,
    ConflictError: Refusal.CONFLICT,
    InvalidError: Refusal.INVALID,
}


def existing(cluster: Cluster, kind: str, key: str) -> Manifest:
    manifest = cluster.get(kind, key)
    if manifest is None:
        raise CallRefusedError(Refusal.NOT_FOUND, f'{kind} "{key}" not found')
    return manifest


def refused(error: RejectedError) -> CallRefusedError:
    refusal = next((it for kind, it in _REFUSALS.items() if isinstance(error, kind)), Refusal.INVALID)
    return CallRefusedError(refusal, str(error))


def with_condition(pod: Manifest, condition: Manifest) -> dict[str, Any]:
    """The pod with the condition merged by its type, as a server does."""
    status = pod.get("status") or {}
    others = [it for it in status.get("conditions") or () if it.get("type") != condition["type"]]
    return {**pod, "status": {**status, "conditions": [*others, dict(condition)]}}


def without_gate(pod: Manifest, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pod without our gate; CONFLICT if it has none."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    others = [it for it in gates if it.get("name") != GATE]
    if len(others) == len(gates):
        raise CallRefusedError(Refusal.CONFLICT, f'Pod "{pod["metadata"]["name"]}" has no gate {GATE} any more')
    metadata = pod["metadata"]
    all_annotations = {**(metadata.get("annotations") or {}), **(annotations or {})}
    metadata_after = {**metadata, "annotations": all_annotations} if all_annotations else metadata
    return {**pod, "metadata": metadata_after, "spec": {**pod["spec"], "schedulingGates": others}}


def without_version(kind: str, key: str) -> CallRefusedError:
    """The error for an update without a version: a real server would overwrite changes of other writers."""
    return CallRefusedError(
        Refusal.INVALID, f'{kind} "{key}": metadata.resourceVersion is missing; read the object and update that'
    )
