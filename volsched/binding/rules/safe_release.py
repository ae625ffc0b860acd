"""The safe table: which writes of a leg can be undone on a cluster that never unbinds, row by row.

A real PV controller binds in four writes, each with the version that it has cached: the volume's spec, the
volume's phase, the claim, the claim's status. While the phase is not Bound, the second write must still succeed,
so a conditional removal of claimRef makes the controller fail before it writes the claim (S2). Once the phase is
Bound, the third write depends on the claim alone: removing claimRef then leaves a Lost claim (S3). A request to a
provisioner cannot be cancelled (D2). Everything later is retained, and listed.

Rejected: a fence on the claim before S3 is cleared. A controller whose view of volumes lags writes it again.
"""

from dataclasses import dataclass
from enum import StrEnum

from volsched.binding.rules import reasons
from volsched.kube.manifest import (
    Manifest,
    annotations,
    claim_is_bound,
    claim_of,
    is_being_deleted,
    spec,
    status,
    uid,
)
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BINDING_STAMP,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.kube.storage import AVAILABLE


class SafeRow(StrEnum):
    """The state of a leg, judged on a claim that was read before its volume."""

    FREE = "S0"
    """Nothing of this leg is in the cluster."""
    PREBOUND = "S2"
    HALF_BOUND = "S3"
    NAMED = "S4"
    BOUND = "S5"
    NOT_OURS = "S6"
    CLAIM_GONE = "S7"
    CLAIM_GONE_LATE = "S7 late"
    """The volume's phase is no longer Available: the controller, or a provisioner, may be reclaiming it."""
    SELECTED = "D1"
    PROVISIONING = "D2"
    GIVEN_BACK = "D2'"
    """A provisioner has removed the node: it created nothing and will create nothing."""
    NODE_GONE = "D2''"
    """A provisioner was requested, the node was deleted longer ago than our timeout, and no volume was created."""


class SafeAction(StrEnum):
    NOTHING = "nothing is left to undo"
    CLEAR = "clear"
    WAIT = "wait for the controller, then retain"
    RETAIN = "retain"


ACTIONS = {
    SafeRow.FREE: SafeAction.NOTHING,
    SafeRow.PREBOUND: SafeAction.CLEAR,
    SafeRow.HALF_BOUND: SafeAction.WAIT,
    SafeRow.NAMED: SafeAction.RETAIN,
    SafeRow.BOUND: SafeAction.RETAIN,
    SafeRow.NOT_OURS: SafeAction.RETAIN,
    SafeRow.CLAIM_GONE: SafeAction.CLEAR,
    SafeRow.CLAIM_GONE_LATE: SafeAction.RETAIN,
    SafeRow.SELECTED: SafeAction.CLEAR,
    SafeRow.NODE_GONE: SafeAction.CLEAR,
    SafeRow.PROVISIONING: SafeAction.RETAIN,
    SafeRow.GIVEN_BACK: SafeAction.CLEAR,
}
"""One action per row; `D2''` (its node is deleted), `P1` and `P2` (the pod) are judged by their callers."""

REASONS = {
    SafeRow.HALF_BOUND: reasons.RETAINED_HALF_BOUND,
    SafeRow.NAMED: reasons.RETAINED_NAMED,
    SafeRow.BOUND: reasons.RETAINED_BOUND,
    SafeRow.NOT_OURS: reasons.RETAINED_NOT_OURS,
    SafeRow.CLAIM_GONE_LATE: reasons.RETAINED_CLAIM_GONE_LATE,
    SafeRow.PROVISIONING: reasons.RETAINED_PROVISIONING,
}
"""The reasons why legs are retained, by row."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A release that cannot be decided now: it is retried a moment later, and retained after the last retry."""

    row: SafeRow


def static_row(
    binding: str, volume_name: str, claim_uid: str, claim: Manifest | None, volume: Manifest
) -> SafeRow:
    """The row of a static leg. `claim`: the one that the leg was planned for; None if it was deleted."""
    reference = claim_of(volume)
    if reference is None or not reference.get("uid"):
        return SafeRow.FREE
    if reference["uid"] != claim_uid or annotations(volume).get(BINDING_STAMP) != binding:
        return SafeRow.NOT_OURS
    is_available = status(volume).get("phase") == AVAILABLE
    if claim is None:
        return SafeRow.CLAIM_GONE if is_available else SafeRow.CLAIM_GONE_LATE
    named = spec(claim).get("volumeName")
    if named == volume_name:
        return SafeRow.BOUND if claim_is_bound(claim) else SafeRow.NAMED
    if is_available:
        # The controller still binds a claim that is being deleted, and policy Delete then destroys the volume.
        return SafeRow.CLAIM_GONE if is_being_deleted(claim) else SafeRow.PREBOUND
    return SafeRow.CLAIM_GONE_LATE if is_being_deleted(claim) or named else SafeRow.HALF_BOUND


def dynamic_row(binding: str, claim_uid: str, claim: Manifest | None, *, is_stranded: bool = False) -> SafeRow:
    """The row of a dynamic leg. `is_stranded`: the node was deleted long ago, and there is no volume."""
    if claim is None or uid(claim) != claim_uid:
        return SafeRow.FREE
    marks = annotations(claim)
    if spec(claim).get("volumeName") or BIND_COMPLETED in marks:
        return SafeRow.BOUND if claim_is_bound(claim) else SafeRow.PROVISIONING
    if marks.get(BINDING_STAMP) != binding:
        return SafeRow.NOT_OURS if SELECTED_NODE in marks else SafeRow.FREE
    if SELECTED_NODE not in marks:
        return SafeRow.GIVEN_BACK
    ordered = STORAGE_PROVISIONER in marks or BETA_STORAGE_PROVISIONER in marks
    if not ordered:
        return SafeRow.SELECTED
    return SafeRow.NODE_GONE if is_stranded else SafeRow.PROVISIONING
