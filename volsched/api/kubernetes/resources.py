"""The resources that the API serves, the meaning of a path, and the forms of `events.k8s.io`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from volsched.kube.kinds import KINDS, Kind
from volsched.log.events.streams import CATEGORIES, NAMED, NOUN_OF_KIND, SHORT

# Events under `events.k8s.io`: the same objects as those of `/api/v1`, with other names for some fields.

EVENTS_VERSION = "events.k8s.io/v1"
_CORE_VERSION = "v1"
_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES = {new: core for core, new in _NEW_NAMES.items()}


def as_new_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**{_NEW_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": EVENTS_VERSION}


def as_core_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**{_CORE_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": _CORE_VERSION}


# Beside the kinds of the log there are others that kube-scheduler and kube-controller-manager request: leases,
# which are stored outside the log, and kinds that they list before they start and that are always empty here.

CORE = ""
"""The group of `/api/v1`."""
READ_VERBS = ("get", "list", "watch")
LEASE_VERBS = ("create", "delete", "get", "list", "patch", "update")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_WITH_STATUS = frozenset(
    {
        "Node",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodDisruptionBudget",
        "Service",
        "StatefulSet",
        "VolumeAttachment",
    }
)
STATUS = "status"
BINDING = "binding"
SCALE = "scale"
EVICTION = "eviction"


class ResourceStorage(Enum):
    """Where objects of a resource are stored."""

    LOG = "log"
    BESIDE = "beside the log"
    NOT = "not at all"


_KEPT_VERBS = {ResourceStorage.LOG: VERBS, ResourceStorage.BESIDE: LEASE_VERBS, ResourceStorage.NOT: READ_VERBS}


@dataclass(frozen=True, slots=True)
class Resource:
    kind: Kind
    noun: str
    plural: str
    singular: str
    stored_in: ResourceStorage = ResourceStorage.LOG

    @property
    def group(self) -> str:
        return self.kind.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.kind.api_version.rpartition("/")[2]

    @property
    def namespaced(self) -> bool:
        return self.kind.namespaced

    @property
    def verbs(self) -> tuple[str, ...]:
        return _KEPT_VERBS[self.stored_in]

    @property
    def short_names(self) -> tuple[str, ...]:
        return SHORT.get(self.kind.name, ())

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(name for name, kinds in CATEGORIES.items() if self.kind.name in kinds)

    @property
    def subresources(self) -> tuple[str, ...]:
        found = (STATUS,) if self.kind.name in _WITH_STATUS else ()
        own = {"Pod": (BINDING, EVICTION), "StatefulSet": (SCALE,)}.get(self.kind.name, ())
        return (*found, *own)

    @property
    def has_own_form(self) -> bool:
        """Its objects are shown in another form than they are stored: `events` of another group."""
        return self.kind.api_version == EVENTS_VERSION

    def as_shown(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return as_new_event(manifest) if self.has_own_form else manifest

    def as_stored(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return as_core_event(manifest) if self.has_own_form else manifest

    def key(self, namespace: str | None, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name


def _resource(kind: Kind) -> Resource:
    named = next(it for it in NAMED if it.title == kind.name)
    return Resource(kind, NOUN_OF_KIND[kind.name], named.plural, named.singular)


def _resource_outside_log(
    name: str,
    api_version: str,
    plural: str,
    *,
    namespaced: bool = True,
    stored_in: ResourceStorage = ResourceStorage.NOT,
) -> Resource:
    return Resource(
        Kind(name, api_version, namespaced, "object_values:Bare"), name.lower(), plural, name.lower(), stored_in
    )


_EVENTS = Resource(
    Kind("Event", EVENTS_VERSION, True, KINDS["Event"].values), NOUN_OF_KIND["Event"], "events", "event"
)
LEASES = _resource_outside_log("Lease", "coordination.k8s.io/v1", "leases", stored_in=ResourceStorage.BESIDE)
_EMPTY = (
    _resource_outside_log("ReplicationController", "v1", "replicationcontrollers"),
    _resource_outside_log("ReplicaSet", "apps/v1", "replicasets"),
    _resource_outside_log("ResourceClaim", "resource.k8s.io/v1", "resourceclaims"),
    _resource_outside_log("ResourceSlice", "resource.k8s.io/v1", "resourceslices", namespaced=False),
    _resource_outside_log("DeviceClass", "resource.k8s.io/v1", "deviceclasses", namespaced=False),
    _resource_outside_log("DeviceTaintRule", "resource.k8s.io/v1", "devicetaintrules", namespaced=False),
)
"""Kinds that kube-scheduler lists before it starts; it waits for each of them without limit."""
RESOURCES = (*(_resource(kind) for kind in KINDS.values()), _EVENTS, LEASES, *_EMPTY)
GROUPS = tuple(dict.fromkeys((it.group, it.version) for it in RESOURCES))
"""(group, version) of everything that is served."""
_BY_PLACE = {(it.group, it.version, it.plural): it for it in RESOURCES}


def resource_at(group: str, version: str, plural: str) -> Resource | None:
    return _BY_PLACE.get((group, version, plural))


def resources_of(group: str, version: str) -> Iterable[Resource]:
    return (it for it in RESOURCES if (it.group, it.version) == (group, version))


def group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


# The meaning of a path: `/api/v1/namespaces/shop/pods/db-0/status`.
#
# Parsed from the path as it was sent. A server that decodes it first cannot distinguish a slash between two
# segments from one hidden inside a name.

NAMESPACES = "namespaces"
LONGEST_REMEMBERED = 500
_FORBIDDEN_IN_NAMES = frozenset("/%\\\0")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The object, or the collection, of a request."""

    resource: Resource
    namespace: str | None = None
    """None: all namespaces, or a cluster-scoped kind."""
    name: str | None = None
    """None: the collection."""
    subresource: str | None = None

    @property
    def key(self) -> str:
        return self.resource.key(self.namespace, self.name or "")


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """The list of the resources of a group and version."""

    group: str
    version: str


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """`/apis/GROUP`."""

    name: str


@dataclass(frozen=True, slots=True)
class Root:
    """`/api` or `/apis`."""

    core: bool


Place = RequestTarget | GroupVersion | ApiGroup | Root


def parse_path(raw: str) -> Place | None:
    """None where nothing is served. `raw` is the path as sent, still percent-encoded, without its query."""
    # Cached: the gate and the handlers parse the same path, and clients repeat requests.
    return _known_place(raw) if len(raw) <= LONGEST_REMEMBERED else _place(raw)


def _place(raw: str) -> Place | None:
    segments = _segments(raw)
    if segments is None:
        return None
    match segments:
        case ["api" | "apis" as root]:
            return Root(core=root == "api")
        case ["apis", group]:
            return ApiGroup(group)
        case ["api", version, *rest]:
            group = CORE
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest:
        return GroupVersion(group, version)
    return _target(group, version, rest)


_known_place = lru_cache(maxsize=1_024)(_place)


def _segments(raw: str) -> list[str] | None:
    parts = raw.split("/")
    if parts[0] != "" or len(parts) < 2:
        return None
    parts = parts[1:]
    # One slash at the end is common; two of them, or one in the middle, mean an empty name.
    if len(parts) > 1 and parts[-1] == "":
        parts.pop()
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        return None
    return None if any(part in ("", ".", "..") for part in decoded) else decoded


def _target(group: str, version: str, rest: list[str]) -> RequestTarget | None:
    namespace: str | None = None
    if rest[0] == NAMESPACES and len(rest) > 2 and not _is_of_namespace(group, version, rest):
        namespace, rest = rest[1], rest[2:]
        if not _is_name(namespace):
            return None
    resource = resource_at(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace is not None and not resource.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else None
    if resource.namespaced and namespace is None and name is not None:
        return None
    # Drivers of volsched itself are named after their provisioners, which have a slash.
    if name is not None and not _is_name(name.replace("/", "", 1) if resource.noun == "driver" else name):
        return None
    if subresource is not None and subresource not in resource.subresources:
        return None
    return RequestTarget(resource, namespace, name, subresource)


def _is_of_namespace(group: str, version: str, rest: list[str]) -> bool:
    """`namespaces/shop/status` is about the namespace, `namespaces/shop/pods` about its objects."""
    namespaces = resource_at(group, version, NAMESPACES)
    return namespaces is not None and len(rest) == 3 and rest[2] in namespaces.subresources


def _is_name(text: str) -> bool:
    return _FORBIDDEN_IN_NAMES.isdisjoint(text) and text.isprintable()
