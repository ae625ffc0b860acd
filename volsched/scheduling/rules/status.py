"""Outcomes of a rule: status codes, the exact reasons a user can meet, the error that fails an attempt."""

from dataclasses import dataclass, field
from enum import StrEnum

from volsched.scheduling.rules.rejection import Rejection


class Code(StrEnum):
    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Another pod's eviction could help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Eviction cannot help."""


# Asked for at every turn, and Python 3.11 takes its time to find a member of an enumeration.
_PASSED = (Code.SUCCESS, Code.SKIP)


@dataclass(frozen=True, slots=True)
class Status:
    code: Code
    reasons: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = field(default=(), compare=False)
    """What stands behind the reasons, for people; no part of what the status is."""

    @property
    def passed(self) -> bool:
        return self.code in _PASSED


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


class AttemptError(Exception):
    """An unexpected fault: the whole attempt fails and is retried, no node is used. Carries the exact text."""


# Reasons of VolumeBinding, in the order in which a node reports them.
NODE_AFFINITY_MISMATCH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
BOUND_TO_MISSING_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

# Reasons of the sibling filters.
NO_ZONE = "node(s) had no available volume zone"
DISK_CONFLICT = "node(s) had no available disk"
EXCLUSIVE_CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
