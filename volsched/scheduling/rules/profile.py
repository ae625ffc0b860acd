"""The two ways to decide: `parity` answers as the reference does, faults included; `volsched` answers better.

A rule reads from the profile exactly the choice it needs, so the differences are listed here and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from volsched.kube.quantity import Quantity
from volsched.kube.storage import CSINode, Volume
from volsched.scheduling.plugins.registry import AFTER_VOLUMES, BEFORE_VOLUMES, Enabled
from volsched.scheduling.rules.disks import translate
from volsched.scheduling.rules.snapshot import Snapshot


class ScoringPolicy(StrEnum):
    UPSTREAM = "upstream"
    """Utilisation mapped through a shape; static bindings hide dynamic ones."""
    CLOSEST_FIT = "closest-fit"
    """The closer the fit the better, and any existing volume before any new one."""


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """A point of the scoring shape: utilization 0..100 gets score 0..10."""

    utilization: int
    score: int


SPREAD = (ShapePoint(0, 10), ShapePoint(100, 0))
"""Prefers the most free space (the reference's default)."""
PACK = (ShapePoint(0, 0), ShapePoint(100, 10))
"""Prefers the closest fit (the reference's default before 1.33)."""


def shape_problem(shape: Sequence[ShapePoint]) -> str | None:
    """Why a scoring shape cannot be used, or None."""
    if not shape:
        return "at least one point must be specified"
    for point in shape:
        if not 0 <= point.utilization <= 100:
            return f"utilization {point.utilization} is not within 0..100"
        if not 0 <= point.score <= 10:
            return f"score {point.score} is not within 0..10"
    for earlier, later in pairwise(shape):
        if later.utilization <= earlier.utilization:
            return f"utilization {later.utilization} does not rise above {earlier.utilization}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    claims_count_once: bool
    """Count a claim mounted by two volumes of a pod once."""
    largest_claim_first: bool
    """Order of the greedy search; `largest-first` is descending, the reference ascends."""
    exact_matching: bool
    """Look for the best assignment when greedy leaves a claim without a volume."""
    joint_capacity: bool
    """Judge published capacity over all claims of the pod and what in-flight bindings have reserved."""
    attach_limits: bool
    """Decide within the node's attach limits instead of leaving them to another filter."""
    enforce_match_fields: bool
    """Evaluate matchFields of a volume's node affinity against the node's name."""
    reads_alpha_annotations: bool
    """Read a claim's selected node under its alpha names too."""
    writes_alpha_annotations: bool
    """Write the selected node under its alpha names too, for provisioners that read nothing else."""
    checks_rollback: bool
    """Hold back the pod of a claim that is being rolled back."""
    releases_foreign_volumes: bool
    """Request rollback also of claims whose volumes another provisioner created and would delete."""
    rechecks_bound_claims: bool
    """Check the volumes of claims that became bound during the cycle once more when reserving."""
    counts_in_flight: bool
    """Count a claim that was given a volume as bound to it, for every pod, before the claim itself is updated."""
    takes_unseen: bool
    """Count a free volume that no PV controller has synced yet as Available, which it will be."""
    int64_sizes: bool
    """Read sizes beyond an int64 as 0 bytes."""
    ties_by_pod: bool
    """Break ties between equally good nodes from another place for every pod, instead of by name for all."""
    remembers_failures: bool
    """Rank nodes on which a binding of the pod failed last for a while."""
    explains: bool
    """Collect, for every rejection, the rule, what was wanted and what was found."""
    translate: Callable[[Volume, CSINode | None], Volume] | None
    """Rewrites an in-tree volume's affinity for a node on which its plugin has moved to CSI."""
    scoring: ScoringPolicy
    shape: tuple[ShapePoint, ...] = SPREAD
    before_volumes: tuple[Enabled, ...] = ()
    """The other constraints of a pod, in the order of the filters: those before volumes."""
    after_volumes: tuple[Enabled, ...] = ()
    volume_weight: int = 1
    """The weight of the volumes' score, beside those of the plugins."""

    def __post_init__(self) -> None:
        problem = shape_problem(self.shape)
        if problem is not None:
            raise ValueError(f"scoring shape of profile {self.name}: {problem}")

    def view(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with in-flight changes as this profile counts them."""
        if self.counts_in_flight:
            return snapshot if snapshot.naming is not None else snapshot.with_naming()
        return snapshot.as_written()

    def bytes_of(self, quantity: Quantity) -> int:
        return quantity.int64_value() if self.int64_sizes else quantity.value()


PARITY = Profile(
    name="parity",
    claims_count_once=False,
    largest_claim_first=False,
    exact_matching=False,
    joint_capacity=False,
    attach_limits=False,
    enforce_match_fields=False,
    reads_alpha_annotations=False,
    writes_alpha_annotations=False,
    checks_rollback=False,
    releases_foreign_volumes=False,
    rechecks_bound_claims=False,
    counts_in_flight=False,
    takes_unseen=False,
    int64_sizes=True,
    ties_by_pod=False,
    remembers_failures=False,
    explains=False,
    translate=translate,
    scoring=ScoringPolicy.UPSTREAM,
)

VOLSCHED = Profile(
    name="volsched",
    claims_count_once=True,
    largest_claim_first=False,
    exact_matching=True,
    joint_capacity=True,
    attach_limits=True,
    enforce_match_fields=False,
    reads_alpha_annotations=True,
    writes_alpha_annotations=False,
    checks_rollback=True,
    releases_foreign_volumes=False,
    rechecks_bound_claims=True,
    counts_in_flight=True,
    takes_unseen=True,
    int64_sizes=False,
    ties_by_pod=True,
    remembers_failures=True,
    explains=True,
    translate=None,
    scoring=ScoringPolicy.CLOSEST_FIT,
    before_volumes=BEFORE_VOLUMES,
    after_volumes=AFTER_VOLUMES,
)

PROFILES = {profile.name: profile for profile in (PARITY, VOLSCHED)}
