"""The state of a volume as a map colours it: one word of six, from what the object and its assumption say."""

from enum import StrEnum

from volsched.kube.manifest import claim_of, status
from volsched.log.events.fold import ObjectState


class VolumeState(StrEnum):
    FREE = "free"
    ASSUMED = "assumed"
    """An open binding has it, or it is kept for a claim that does not have it yet."""
    BOUND = "bound"
    RELEASED = "released"
    """Its claim is gone and its contents are not."""
    UNKNOWN = "unknown"
    """It failed, or nobody has said what it is: it counts as dirty."""
    LOST = "lost"
    """A claim is bound to it, and it is not there."""


_OF_PHASE = {"Available": VolumeState.FREE, "Bound": VolumeState.BOUND, "Released": VolumeState.RELEASED}


def volume_state(state: ObjectState) -> VolumeState:
    manifest = state.manifest or {}
    phase = status(manifest).get("phase") or "Pending"
    assumed = state.assumed is not None and state.assumed.rv == state.rv
    if phase in ("Available", "Pending") and (assumed or claim_of(manifest)):
        return VolumeState.ASSUMED
    if phase == "Pending":
        # Nobody has looked at it yet.
        return VolumeState.FREE
    return _OF_PHASE.get(str(phase), VolumeState.UNKNOWN)
