"""A server for each test, on a store of its own."""

from collections.abc import Iterator

import pytest

from tests.support.fresh_stores import fresh_store
from tests.support.serving import Served, served
from volsched.log.database import Database


@pytest.fixture
def api(sqlite: Database) -> Iterator[Served]:
    """The API alone: nothing moves but what the test sends."""
    with served(sqlite) as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """The API alone, for all tests of a module that change nothing."""
    with fresh_store() as database, served(database) as running:
        yield running


@pytest.fixture
def up(sqlite: Database) -> Iterator[Served]:
    """The whole system."""
    with served(sqlite, system=True) as running:
        yield running
