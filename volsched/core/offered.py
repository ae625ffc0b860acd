"""What `volsched.core` offers to authors of schedulers."""

from volsched.core.claims import PodClaims, classify_claims
from volsched.core.cycle import Attempt, Verdict, attempt
from volsched.core.filtering import NodeAnswer, find_pod_volumes, prefilter
from volsched.core.matching import Search, find_for_controller, find_matching_volume
from volsched.core.profile import PARITY, VOLSCHED, Profile
from volsched.core.reserving import Reservation, assume_pod_volumes, revert_assumed_pod_volumes
from volsched.core.scoring import node_score
from volsched.core.snapshot import Snapshot, snapshot_of
from volsched.core.status import AttemptError, Code, Status
from volsched.kube.claim_reference import bind_volume, is_bound_to

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
