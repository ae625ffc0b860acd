"""What people call a kind: `pv`, `persistentvolumes`, `PersistentVolume`. Whoever takes a KIND from one asks here.

Bindings and attempts are not Kubernetes kinds, but are named and listed like them.
"""

import difflib
from dataclasses import dataclass

from volsched.kube.kinds import KINDS
from volsched.log.events.streams import ATTEMPT, BINDING, KIND_OF_NOUN, NOUN_OF_KIND

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
"""As kubectl has them; the kinds that are missing have none there either."""
PLURALS = {
    "StorageClass": "storageclasses",
    "CSIStorageCapacity": "csistoragecapacities",
    "PriorityClass": "priorityclasses",
}
OURS = {BINDING: "bindings", ATTEMPT: "attempts"}
SUGGESTED = 3


class UnknownKindError(LookupError):
    """Nothing is called that; the message says what comes near, and what there is."""


@dataclass(frozen=True, slots=True)
class Named:
    """A kind as people name it, and the noun of its streams."""

    noun: str
    singular: str
    plural: str
    namespaced: bool
    """For bindings and attempts: the namespace is that of the pod."""
    title: str
    """As in a manifest's `kind`."""

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


def kind_called(text: str) -> Named:
    """The kind of that name, in any case; raises UnknownKindError."""
    found = _BY_NAME.get(text.lower())
    if found is not None:
        return found
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
