"""The proof that a mirror equals its cluster: compares uid and version of every object, not the objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """The data of an object that the proof of equality needs."""

    key: str
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences. One counts after it has lasted a minute: list and mirror are not of the same moment."""

    missing: tuple[str, ...] = ()
    """Keys in the cluster but not in the mirror."""
    left_over: tuple[str, ...] = ()
    """Keys in the mirror but not in the cluster, or there another object of that name."""
    stale: tuple[str, ...] = ()
    """Keys that the mirror has at another version."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.left_over or self.stale)

    def also_in(self, later: "Drift") -> "Drift":
        """The differences that persist in a later comparison."""
        return Drift(
            tuple(sorted(set(self.missing) & set(later.missing))),
            tuple(sorted(set(self.left_over) & set(later.left_over))),
            tuple(sorted(set(self.stale) & set(later.stale))),
        )


def compare(listed: Iterable[ObjectVersion], known: Mapping[str, tuple[str, str]], *, cursor: str) -> Drift:
    """`known`: key → uid and version, of one kind; `cursor`: the list's version.

    An object known at a later version than the list's is newer than the list, and not a difference.
    """
    objects = {it.key: it for it in listed}
    missing = [key for key in objects if key not in known]
    left_over, stale = [], []
    for key, (uid, version) in known.items():
        there = objects.get(key)
        if int(version) > int(cursor):
            continue
        if there is None or there.uid != uid:
            left_over.append(key)
        elif int(version) != int(there.version):
            # An earlier version than ours counts too: the cluster was restored, whatever its list's version.
            stale.append(key)
    return Drift(tuple(sorted(missing)), tuple(sorted(left_over)), tuple(sorted(stale)))
