"""A stack for one test: PostgreSQL as the other suites have it, and a Redis of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.processes import REDIS_SERVER, Redis


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Redis]:
    if REDIS_SERVER is None:
        pytest.skip("there is no redis-server, neither from its wheel nor installed")
    server = Redis(tmp_path)
    server.start()
    yield server
    server.stop()
