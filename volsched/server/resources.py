"""The resources that the API serves: our kinds, under the names and paths that Kubernetes has for them."""

from collections.abc import Iterable
from dataclasses import dataclass

from volsched.events.kind_names import NAMED, SHORT
from volsched.events.streams import NOUN_OF_KIND
from volsched.model.kinds import KINDS, Kind

CORE = ""
"""The group of `/api/v1`."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_WITH_STATUS = frozenset(
    {
        "Node",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "StatefulSet",
        "VolumeAttachment",
    }
)
_CATEGORIES = {"Pod": ("all",), "StatefulSet": ("all",)}
STATUS = "status"
BINDING = "binding"
SCALE = "scale"


@dataclass(frozen=True, slots=True)
class Resource:
    kind: Kind
    noun: str
    plural: str
    singular: str

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

    def key(self, namespace: str | None, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name


def _resource(kind: Kind) -> Resource:
    named = next(it for it in NAMED if it.title == kind.name)
    return Resource(kind, NOUN_OF_KIND[kind.name], named.plural, named.singular)


RESOURCES = tuple(_resource(kind) for kind in KINDS.values())
GROUPS = tuple(dict.fromkeys((it.group, it.version) for it in RESOURCES))
"""(group, version) of all that is served."""
_BY_PLACE = {(it.group, it.version, it.plural): it for it in RESOURCES}


def resource_at(group: str, version: str, plural: str) -> Resource | None:
    return _BY_PLACE.get((group, version, plural))


def resources_of(group: str, version: str) -> Iterable[Resource]:
    return (it for it in RESOURCES if (it.group, it.version) == (group, version))


def group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version
