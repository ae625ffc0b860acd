"""Two versions of the program on one store: the old one works on tables that the next one has expanded."""

import shutil
from pathlib import Path

import pytest
from alembic.config import Config

from alembic import command
from tests.log.next_version import NEXT, write_next_revision
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.histories import sql
from tests.support.patience import HANG_SECONDS
from volsched.library import Engine
from volsched.log.database import Database
from volsched.log.errors import NewerStoreError
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.revisions import FORMAT, newest, scripts
from volsched.log.store import open_store

MANY = 12
"""Commands, after which every statement was prepared that a driver prepares at all."""


@pytest.fixture
def expanded(database: Database, tmp_path: Path) -> Database:
    expand(database, tmp_path)
    return database


def expand(database: Database, tmp_path: Path) -> None:
    """What `volsched migrate` of the next version does."""
    checkout = tmp_path / "next"
    shutil.copytree(scripts(), checkout, ignore=shutil.ignore_patterns("__pycache__"))
    write_next_revision(checkout, after=newest())
    config = Config()
    config.set_main_option("script_location", str(checkout))
    with database.migrating() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def objects(name: str) -> list[dict[str, object]]:
    return [volume(f"pv-{name}", "1Gi", "node-0"), claim(f"c-{name}", "1Gi"), pod(f"p-{name}", f"c-{name}")]


def test_this_program_does_all_its_work_on_tables_that_the_next_one_expands_beneath_it(
    url: str, database: Database, tmp_path: Path
) -> None:
    with Engine.open(url) as engine:
        engine.apply([LOCAL, node("node-0")])
        for number in range(MANY):
            engine.apply(objects(f"before-{number}"))
        assert engine.run_until_idle(timeout=HANG_SECONDS)
        expand(database, tmp_path)
        for number in range(MANY):
            engine.apply(objects(f"after-{number}"))
        assert engine.run_until_idle(timeout=HANG_SECONDS)
        assert [it["spec"]["nodeName"] for it in engine.objects("pod")] == ["node-0"] * 2 * MANY
        engine.delete("pod", "default/p-after-0")
    database = open_store(url)
    assert verify(database).ok
    rebuild(database)
    assert verify(database).ok
    database.close()


def test_a_store_that_asks_for_newer_writers_is_read_and_not_written(url: str, expanded: Database) -> None:
    """The contracting half of an upgrade raises it, when no old process is left."""
    with Engine.open(url) as engine:
        engine.apply([LOCAL])
        sql(expanded, f"UPDATE log_head SET min_writer = {FORMAT + 1}")
        with pytest.raises(NewerStoreError, match=f"writers of format {FORMAT + 1} or newer"):
            engine.apply([node("node-0")])
        assert [it["metadata"]["name"] for it in engine.objects("storageclass")] == ["local"]
    sql(expanded, f"UPDATE log_head SET min_reader = {FORMAT + 1}")
    with pytest.raises(NewerStoreError, match=f"readers of format {FORMAT + 1} or newer"):
        open_store(url)


def test_the_next_revision_is_one_that_this_program_does_not_have() -> None:
    assert newest() < NEXT
