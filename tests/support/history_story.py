"""A short history to ask about."""

import shutil
from pathlib import Path

import pytest

from tests.support.audit_story import tell
from tests.support.fresh_stores import unsynced_store


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> str:
    """The store of the stolen volume; nothing here writes to it."""
    path = tmp_path_factory.mktemp("story") / "store.db"
    shutil.copyfile(migrated_file, path)
    with unsynced_store(path) as database:
        tell(database)
    return str(path)
