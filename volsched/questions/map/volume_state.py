"""The state of a volume as a map colours it: one word of six, from what the object and its assumption say."""

from enum import StrEnum


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


_OF_PHASE = {"Bound": VolumeState.BOUND, "Released": VolumeState.RELEASED}


def volume_state(phase: str | None, *, taken: bool) -> VolumeState:
    """`taken`: an open binding or a claim has it."""
    if phase in ("Available", "Pending", None):
        # Pending: nobody has looked at it yet.
        return VolumeState.ASSUMED if taken else VolumeState.FREE
    return _OF_PHASE.get(phase, VolumeState.UNKNOWN)
