"""The resources that the API serves: our kinds, under the names and paths that Kubernetes has for them.

Beside those of the log there are two sorts that kube-scheduler and kube-controller-manager ask for: leases, which
are kept but not in the log, and kinds that they list before they start and of which there never is one here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from volsched.api.kubernetes.event_forms import EVENTS_VERSION, as_core_event, as_new_event
from volsched.kube.kinds import KINDS, Kind
from volsched.kube.stored_kinds import Bare
from volsched.kube.workloads import EventObject
from volsched.log.events.kind_names import NAMED, SHORT
from volsched.log.events.streams import NOUN_OF_KIND

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
_CATEGORIES = {"Pod": ("all",), "StatefulSet": ("all",), "Service": ("all",)}
STATUS = "status"
BINDING = "binding"
SCALE = "scale"


class Kept(Enum):
    """Where objects of a resource are."""

    LOG = "log"
    BESIDE = "beside the log"
    NOT = "not at all"


_KEPT_VERBS = {Kept.LOG: VERBS, Kept.BESIDE: LEASE_VERBS, Kept.NOT: READ_VERBS}


@dataclass(frozen=True, slots=True)
class Resource:
    kind: Kind
    noun: str
    plural: str
    singular: str
    kept: Kept = Kept.LOG

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
        return _KEPT_VERBS[self.kept]

    @property
    def short_names(self) -> tuple[str, ...]:
        return SHORT.get(self.kind.name, ())

    @property
    def categories(self) -> tuple[str, ...]:
        return _CATEGORIES.get(self.kind.name, ())

    @property
    def subresources(self) -> tuple[str, ...]:
        found = (STATUS,) if self.kind.name in _WITH_STATUS else ()
        own = {"Pod": (BINDING,), "StatefulSet": (SCALE,)}.get(self.kind.name, ())
        return (*found, *own)

    @property
    def has_own_form(self) -> bool:
        """Its objects are shown otherwise than they are stored: `events` of another group."""
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


def _apart(
    name: str, api_version: str, plural: str, *, namespaced: bool = True, kept: Kept = Kept.NOT
) -> Resource:
    return Resource(Kind(name, api_version, namespaced, Bare), name.lower(), plural, name.lower(), kept)


_EVENTS = Resource(Kind("Event", EVENTS_VERSION, True, EventObject), NOUN_OF_KIND["Event"], "events", "event")
LEASES = _apart("Lease", "coordination.k8s.io/v1", "leases", kept=Kept.BESIDE)
_EMPTY = (
    _apart("ReplicationController", "v1", "replicationcontrollers"),
    _apart("ReplicaSet", "apps/v1", "replicasets"),
    _apart("ResourceClaim", "resource.k8s.io/v1", "resourceclaims"),
    _apart("ResourceSlice", "resource.k8s.io/v1", "resourceslices", namespaced=False),
    _apart("DeviceClass", "resource.k8s.io/v1", "deviceclasses", namespaced=False),
    _apart("DeviceTaintRule", "resource.k8s.io/v1", "devicetaintrules", namespaced=False),
)
"""What kube-scheduler lists before it starts; it waits for each of them for ever."""
RESOURCES = (*(_resource(kind) for kind in KINDS.values()), _EVENTS, LEASES, *_EMPTY)
GROUPS = tuple(dict.fromkeys((it.group, it.version) for it in RESOURCES))
"""(group, version) of all that is served."""
_BY_PLACE = {(it.group, it.version, it.plural): it for it in RESOURCES}


def resource_at(group: str, version: str, plural: str) -> Resource | None:
    return _BY_PLACE.get((group, version, plural))


def resources_of(group: str, version: str) -> Iterable[Resource]:
    return (it for it in RESOURCES if (it.group, it.version) == (group, version))


def group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version
