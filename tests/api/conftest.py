"""A server for each test, on a store of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import unsynced
from tests.support.serving import Served, served
from volsched.log.database import Database, open_database


@pytest.fixture
def api(sqlite: Database) -> Iterator[Served]:
    """The API alone: nothing moves but what the test sends."""
    with served(sqlite) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Served]:
    """The API alone, for all tests of a module that change nothing."""
    path = tmp_path_factory.mktemp("shared") / "store.db"
    shutil.copyfile(migrated_file, path)
    database = open_database(f"sqlite:///{path}")
    unsynced(database)
    with served(database) as running:
        yield running
    database.close()


@pytest.fixture
def up(sqlite: Database) -> Iterator[Served]:
    """The whole system."""
    with served(sqlite, system=True) as running:
        yield running
