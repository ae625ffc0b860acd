"""Settings: what they come to where nothing is set."""

import pytest

from volsched.runtime.clock import SECOND
from volsched.runtime.settings import ATTACHED_LEASE_SECONDS, EFFECT_LEASE_SECONDS, Settings


def test_leases_are_longer_on_an_attached_cluster_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever process: a worker of an attached cluster makes the same calls as `volsched attach`."""
    monkeypatch.delenv("VOLSCHED_LEASE_SECONDS", raising=False)
    assert Settings().effect_lease() == EFFECT_LEASE_SECONDS * SECOND
    assert Settings().effect_lease(attached=True) == ATTACHED_LEASE_SECONDS * SECOND
    monkeypatch.setenv("VOLSCHED_LEASE_SECONDS", "7.5")
    assert Settings().effect_lease() == Settings().effect_lease(attached=True) == 7.5 * SECOND
