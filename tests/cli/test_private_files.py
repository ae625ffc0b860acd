"""What holds a store, or a copy of its log, is made for its owner alone, whatever the umask says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_stores_exports_backups_archives_and_anchors_are_their_owners(run: Run, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    run("migrate", "--db", store)
    run("create", "-f", "-", "--db", store, stdin="apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    run("export", str(tmp_path / "log.jsonl"), "--db", store)
    run("export", str(tmp_path / "log.csv"), "-o", "csv", "--db", store)
    run("backup", str(tmp_path / "backup.jsonl.gz"), "--db", store)
    run("verify", "--write-anchor", str(tmp_path / "anchor.json"), "--db", store)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {"store.db", "log.jsonl", "log.csv", "backup.jsonl.gz", "anchor.json"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes
