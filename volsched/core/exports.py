"""What `volsched.core` offers to authors of schedulers."""

from volsched.kube.manifest import bind_volume, is_bound_to
from volsched.scheduling.rules.cycle import Attempt, Verdict, attempt
from volsched.scheduling.rules.matching import Search, find_for_controller, find_matching_volume
from volsched.scheduling.rules.pod_claims import PodClaims, classify_claims
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.scoring import node_score
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import AssumedDecision as Reservation  # its name for library users
from volsched.scheduling.rules.volume_filter import (
    NodeAnswer,
    assume_pod_volumes,
    find_pod_volumes,
    prefilter,
    revert_assumed_pod_volumes,
)

__all__ = [
    "PARITY",
    "VOLSCHED",
    "Attempt",
    "AttemptError",
    "Code",
    "NodeAnswer",
    "PodClaims",
    "Profile",
    "Reservation",
    "Search",
    "Snapshot",
    "Status",
    "Verdict",
    "assume_pod_volumes",
    "attempt",
    "bind_volume",
    "classify_claims",
    "find_for_controller",
    "find_matching_volume",
    "find_pod_volumes",
    "is_bound_to",
    "node_score",
    "prefilter",
    "revert_assumed_pod_volumes",
    "snapshot_of",
]
