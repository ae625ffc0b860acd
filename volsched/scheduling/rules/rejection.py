"""Why something was refused, as data: the claim, the rule, what was wanted and what was found.

The short reasons of `status` are what the reference says; these are what a person needs to act.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

FAR = 10


class Rule(StrEnum):
    """Each test that a volume, a class or a node can fail, by the name shown to users."""

    NOT_TAKEN = "not-taken"
    UNCLAIMED = "unclaimed"
    CAPACITY = "capacity"
    VOLUME_MODE = "volume-mode"
    ATTRIBUTES_CLASS = "attributes-class"
    NOT_DELETED = "not-deleted"
    LEFT_TO_SCHEDULER = "left-to-scheduler"
    PHASE = "phase"
    SELECTOR = "selector"
    CLASS = "class"
    NODE_AFFINITY = "node-affinity"
    ATTACH_LIMIT = "attach-limit"
    ACCESS_MODES = "access-modes"
    VOLUME_EXISTS = "volume-exists"
    PINNED = "pinned"
    SELECTED_NODE = "selected-node"
    PROVISIONER = "provisioner"
    ALLOWED_TOPOLOGIES = "allowed-topologies"
    FREE_STORAGE = "free-storage"
    EXCLUSIVE_USE = "exclusive-use"
    DISK_CONFLICT = "disk-conflict"
    DRIVER_INSTALLED = "driver-installed"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Failure:
    rule: Rule
    wanted: str
    got: str


@dataclass(frozen=True, slots=True)
class Miss:
    """A volume that was looked at and did not do, with every rule it failed."""

    volume: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One claim that keeps the pod off a node."""

    reason: str
    claim: str
    failures: tuple[Failure, ...] = ()
    misses: tuple[Miss, ...] = ()
    """The volumes that came nearest, the nearest first."""


def distance(rejections: Iterable[Rejection]) -> tuple[int, int]:
    """How far a node is from taking the pod: claims that are not served, then rules that the nearest volumes fail.

    A volume of another node is no near miss, however well it would fit.
    """
    nearest = [min(map(_rules, it.misses), default=FAR) for it in rejections]
    return len(nearest), sum(nearest)


def _rules(miss: Miss) -> int:
    return sum(FAR if it.rule is Rule.NODE_AFFINITY else 1 for it in miss.failures)
