"""Crashes at random named places, thousands of them: every run ends in order, whatever was half done.

`VOLSCHED_DRILL_SEEDS=A..B` chooses the seeds; `make drills` runs many more than a test run does.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.crashes import Run
from tests.support.extent import extent
from tests.support.fresh_stores import unsynced
from volsched.log.database import Database, open_database

SEEDS = os.environ.get("VOLSCHED_DRILL_SEEDS", "1..10")
FIRST, LAST = (int(number) for number in SEEDS.split(".."))
PER_TEST = 5
Counted = Callable[[str, object], None]


def fresh(template: Path, path: Path) -> Database:
    database = open_database(f"sqlite:///{shutil.copyfile(template, path)}")
    unsynced(database)
    return database


@pytest.mark.parametrize("first", range(FIRST, LAST + 1, PER_TEST))
def test_every_run_ends_in_order_on_sqlite(
    first: int, tmp_path: Path, migrated_file: Path, record_property: Counted
) -> None:
    crashes = 0
    for seed in range(first, min(first + PER_TEST, LAST + 1)):
        run = Run(seed, fresh(migrated_file, tmp_path / f"{seed}.db"))
        found = run.play()
        run.database.close()
        assert found == [], f"seed {seed}"
        crashes += run.crashes
    record_property("stepped crashes on SQLite", crashes)
    assert crashes > 0


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("seed", range(1001, 1001 + extent(2, 4)))
def test_every_run_ends_in_order_on_postgres(seed: int, database: Database, record_property: Counted) -> None:
    run = Run(seed, database)
    assert run.play() == []
    record_property("stepped crashes on PostgreSQL", run.crashes)
    assert run.crashes > 0
