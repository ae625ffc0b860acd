"""How long an external provisioner waits before it tries again; it never gives up."""

from volsched.runtime.clock import SECOND

FIRST_BACKOFF = 1 * SECOND
LONGEST_BACKOFF = 300 * SECOND


def backoff(failures: int) -> int:
    """After so many failures in a row."""
    return min(FIRST_BACKOFF << min(failures - 1, 16), LONGEST_BACKOFF)
