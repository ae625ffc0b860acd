"""The state of a volume on the map: one of six words, by the object and its assumption."""

from enum import StrEnum


class VolumeState(StrEnum):
    FREE = "free"
    ASSUMED = "assumed"
    """An open binding has assumed it, or it is reserved for a claim that is not bound yet."""
    BOUND = "bound"
    RELEASED = "released"
    """Its claim is deleted, but its contents are not."""
    UNKNOWN = "unknown"
    """It failed, or its phase is unknown: it counts as dirty."""
    LOST = "lost"
    """A claim is bound to it, and it does not exist."""


_OF_PHASE = {"Bound": VolumeState.BOUND, "Released": VolumeState.RELEASED}


def volume_state(phase: str | None, *, taken: bool) -> VolumeState:
    """`taken`: whether an open binding or a claim has it."""
    if phase in ("Available", "Pending", None):
        # Pending: the PV controller has not handled it yet.
        return VolumeState.ASSUMED if taken else VolumeState.FREE
    return _OF_PHASE.get(phase, VolumeState.UNKNOWN)
