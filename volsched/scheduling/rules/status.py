"""Outcomes of a rule: status codes, the exact reasons that users see, and the details of a refusal as data."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

# The details of a refusal as data: the claim, the rule, the wanted value and the value found.
#
# The short reasons of `status` are the reference's; these are what a user needs to act.

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
    """A volume that was checked and did not fit, with every rule it failed."""

    volume: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One claim that keeps the pod off a node."""

    reason: str
    claim: str
    failures: tuple[Failure, ...] = ()
    misses: tuple[Miss, ...] = ()
    """The nearest volumes, the nearest first."""


def distance(rejections: Iterable[Rejection]) -> tuple[int, int]:
    """How far a node is from fitting the pod: claims not served, then rules that the nearest volumes fail.

    A volume of another node is not a near miss, however well it would fit.
    """
    nearest = [min(map(_rules, it.misses), default=FAR) for it in rejections]
    return len(nearest), sum(nearest)


def _rules(miss: Miss) -> int:
    return sum(FAR if it.rule is Rule.NODE_AFFINITY else 1 for it in miss.failures)


class Code(StrEnum):
    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Another pod's eviction could help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Eviction cannot help."""


# Read constantly, and Python 3.11 is slow at finding a member of an enumeration.
_PASSED = (Code.SUCCESS, Code.SKIP)


@dataclass(frozen=True, slots=True)
class Status:
    code: Code
    reasons: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = field(default=(), compare=False)
    """The details behind the reasons, for users; not part of the status itself."""

    @property
    def passed(self) -> bool:
        return self.code in _PASSED


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


class AttemptError(Exception):
    """An unexpected fault: the whole attempt fails and is retried, no node is used. Carries the exact text."""
