"""What tests of provisioners share: a directory for host-path, and no fault that a test before left armed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from volsched.runtime import fault_points


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    fault_points.arm(None, drill=False)
