"""Phases of volumes and claims besides those that the model already names."""

PENDING = "Pending"
BOUND = "Bound"
RELEASED = "Released"
FAILED = "Failed"
GIVEN_UP = (RELEASED, FAILED)
"""A volume that its claim has left; it is never released a second time, and Failed stays to be seen."""
