"""Names of streams and kinds, as the log and as people write them, and the lives of a name."""

import difflib
import re
from dataclasses import dataclass
from typing import NamedTuple

from volsched.kube.kinds import KINDS

NOUN_OF_KIND = {
    "Node": "node",
    "Namespace": "namespace",
    "StorageClass": "class",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "claim",
    "Pod": "pod",
    "CSIDriver": "driver",
    "CSINode": "csinode",
    "CSIStorageCapacity": "capacity",
    "VolumeAttachment": "attachment",
    "Event": "notice",
    "StatefulSet": "statefulset",
    "Service": "service",
    "ControllerRevision": "revision",
    "PodDisruptionBudget": "disruptionbudget",
    "PriorityClass": "priorityclass",
}
KIND_OF_NOUN = {noun: KINDS[kind] for kind, noun in NOUN_OF_KIND.items()}
BINDING = "binding"
ATTEMPT = "attempt"
ID = re.compile(r"[0-9a-f]{12}")
"""The id of an attempt and of its binding, as logs and answers print it."""
RETENTION = "retention"
"""The noun of archives and redactions of old events; it has no state."""
TOKEN = "token"
LEASE = "lease"
CLOCK = "clock"
LOG_CLOCK = f"{CLOCK}/log"
"""The one stream of corrections of the log's time."""
CLUSTER = "cluster"
OBSERVED_CLUSTER = f"{CLUSTER}/observed"
"""The one stream about a foreign cluster as a whole; it has no state."""
AUDIT = "audit"
AUDIT_READS = f"{AUDIT}/reads"
"""The one stream of history reads over HTTP: the caller and the question."""


def stream_of(kind: str, key: str) -> str:
    """The stream of the object with this kind and key (`name` or `namespace/name`)."""
    return f"{NOUN_OF_KIND[kind]}/{key}"


def noun_and_key(stream: str) -> tuple[str, str]:
    noun, _, key = stream.partition("/")
    return noun, key


# The names of a kind: `pv`, `persistentvolumes`, `PersistentVolume`. Every KIND that a person types is resolved
# here.
#
# Bindings and attempts are not Kubernetes kinds, but are named and listed like them.

SHORT = {
    "Node": ("no",),
    "Namespace": ("ns",),
    "StorageClass": ("sc",),
    "PersistentVolume": ("pv",),
    "PersistentVolumeClaim": ("pvc",),
    "Pod": ("po",),
    "Event": ("ev",),
    "StatefulSet": ("sts",),
    "Service": ("svc",),
    "PodDisruptionBudget": ("pdb",),
    "PriorityClass": ("pc",),
}
"""As in kubectl; the missing kinds have no short name there either."""
CATEGORIES = {"all": ("Pod", "Service", "StatefulSet")}
"""Names for several kinds at once, as in kubectl: the workloads."""
PLURALS = {
    "StorageClass": "storageclasses",
    "CSIStorageCapacity": "csistoragecapacities",
    "PriorityClass": "priorityclasses",
}
OURS = {BINDING: "bindings", ATTEMPT: "attempts"}
SUGGESTED = 3


class UnknownKindError(LookupError):
    """No kind has that name; the message suggests near matches and lists all kinds."""


@dataclass(frozen=True, slots=True)
class Named:
    """A kind as people name it, and the noun of its streams."""

    noun: str
    singular: str
    plural: str
    namespaced: bool
    """For bindings and attempts, the namespace is that of the pod."""
    title: str
    """The kind as in a manifest."""

    @property
    def is_object(self) -> bool:
        return self.noun in KIND_OF_NOUN


def _named(kind: str) -> Named:
    singular = kind.lower()
    return Named(
        NOUN_OF_KIND[kind], singular, PLURALS.get(kind, f"{singular}s"), KINDS[kind].namespaced, title=kind
    )


NAMED = (
    *(_named(kind) for kind in NOUN_OF_KIND),
    *(Named(noun, noun, plural, namespaced=True, title=noun.capitalize()) for noun, plural in OURS.items()),
)
_BY_NAME = {name: named for named in NAMED for name in (named.singular, named.plural, *SHORT.get(named.title, ()))}
_BY_NOUN = {named.noun: named for named in NAMED}
"""Kinds by the noun that the log and its readers print: `volume/disk-7`, `claim/shop/data-0`."""


def kind_called(text: str) -> Named:
    """The kind of that name, in any letter case; raises UnknownKindError."""
    # kubectl prints `storageclass.storage.k8s.io`.
    word = text.lower().partition(".")[0]
    kind = _BY_NAME.get(word) or _BY_NOUN.get(word)
    if kind is not None:
        return kind
    word = text.lower()[:80]
    near = difflib.get_close_matches(word, _BY_NAME, SUGGESTED) or [
        name for name in _BY_NAME if len(word) > 2 and word in name
    ]
    meant = f"did you mean {' or '.join(near[:SUGGESTED])}? " if near else ""
    known = ", ".join(shown_names(named) for named in NAMED)
    raise UnknownKindError(f'there is no kind "{text[:80]}"; {meant}known are {known}')


def shown_names(named: Named) -> str:
    """`persistentvolumes (pv)`."""
    short = SHORT.get(named.title)
    return f"{named.plural} ({', '.join(short)})" if short else named.plural


# The lives of a name: the objects that had it one after the other, each with its own uid.


class ObjectLife(NamedTuple):
    """An object from its creation to its deletion."""

    uid: str
    born: int
    """Position of its creation; if that is archived, of its last write before."""
    ended_at: int | None = None
    """When it was deleted, in microseconds; None: it exists."""
