"""How much of a property a test run plays. `make drills` plays all of it, by the same tests.

What has more to play than `make test` has time for is marked `extended`, and says both numbers.
"""

import os

import pytest

FULL = "VOLSCHED_TEST_FULL" in os.environ
extended = pytest.mark.extended


def extent(quick: int, full: int) -> int:
    """A number of examples, seeds or rounds."""
    return full if FULL else quick
