"""What tests of provisioners share: a directory for host-path, and no fault that a test before left armed."""

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _disarm(disarmed: None) -> None:
    """For all of them."""
