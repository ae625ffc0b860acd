"""A stack for one test: PostgreSQL as the other suites have it, and a Redis of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.processes import Redis


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    server.start()
    yield server
    server.stop()
