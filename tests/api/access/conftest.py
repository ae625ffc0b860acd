"""A server with TLS for each test, and one for all tests of a module that change nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.access.secured import Secured, secured
from tests.support.fresh_stores import unsynced_store
from volsched.api.access.tls import Authority, make_authority
from volsched.log.database import Database


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def api(sqlite: Database, authority: Authority, tmp_path: Path) -> Iterator[Secured]:
    with secured(sqlite, authority, tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, migrated_file: Path, authority: Authority
) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("shared")
    shutil.copyfile(migrated_file, directory / "store.db")
    with unsynced_store(directory / "store.db") as database, secured(database, authority, directory) as running:
        yield running
