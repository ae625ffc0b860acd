"""The proof that a mirror equals its cluster: uid and version of every object on both sides, not the objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """All that the proof of equality needs of an object."""

    key: str
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Drift:
    """What differs. A difference counts after it has lasted a minute: list and mirror are not of one moment."""

    missing: tuple[str, ...] = ()
    """In the cluster, and not known."""
    left_over: tuple[str, ...] = ()
    """Known, and not in the cluster, or another object of that name."""
    stale: tuple[str, ...] = ()
    """Known at another version."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.left_over or self.stale)

    def also_in(self, later: "Drift") -> "Drift":
        """What still differs in a later comparison."""
        return Drift(
            tuple(sorted(set(self.missing) & set(later.missing))),
            tuple(sorted(set(self.left_over) & set(later.left_over))),
            tuple(sorted(set(self.stale) & set(later.stale))),
        )


def compare(listed: Iterable[ObjectVersion], known: Mapping[str, tuple[str, str]], *, cursor: str) -> Drift:
    """`known`: key → uid and version, of one kind; `cursor`: the list's version.

    What is known at a later version than the list's is newer than the list, and no difference.
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
