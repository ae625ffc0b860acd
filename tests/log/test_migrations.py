"""Migrations produce exactly the tables of the program, can be taken back, and travel with the wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, select

from tests.support.histories import fill
from tests.support.patience import HANG_SECONDS
from tests.support.store_samples import create_volume, must
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.migrations import downgrade, migrate
from volsched.log.revisions import newest, revision_ids, scripts
from volsched.log.store import revision_of

ROOT = Path(__file__).parents[2]


def test_migrations_make_the_tables_of_the_program(database: Database) -> None:
    with database.migrating() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, tables.metadata) == []


def test_migrations_make_the_partial_indexes_of_the_program(database: Database) -> None:
    """Alembic does not compare the conditions of indexes, so they are read back from the database itself."""
    option = f"{database.engine.dialect.name}_where"
    wanted = {
        index.name: _bare(index.dialect_options[database.engine.dialect.name]["where"])
        for table in tables.metadata.tables.values()
        for index in table.indexes
        if index.dialect_options[database.engine.dialect.name]["where"] is not None
    }
    inspector = inspect(database.engine)
    found = {
        index["name"]: _bare(index["dialect_options"][option])
        for name in tables.metadata.tables
        for index in inspector.get_indexes(name)
        if index.get("dialect_options", {}).get(option) is not None
    }
    assert found == wanted
    assert "uq_binding_legs_open_volume" in found


def _bare(condition: object) -> str:
    """Without brackets, which an engine adds as it likes."""
    return str(condition).replace("(", "").replace(")", "")


def test_an_empty_store_goes_down_to_nothing_and_up_again(database: Database) -> None:
    downgrade(database, to="base")
    assert set(inspect(database.engine).get_table_names()) == {"alembic_version"}
    with database.read() as connection:
        assert revision_of(connection) is None
    migrate(database)
    with database.read() as connection:
        assert revision_of(connection) == newest()
    must(database, create_volume("a"))


def test_revisions_read_from_names_are_those_that_alembic_runs() -> None:
    ours = ScriptDirectory(str(scripts()))
    assert list(revision_ids()) == [it.revision for it in reversed(list(ours.walk_revisions()))]
    assert newest() == ours.get_current_head()


def test_migrating_again_changes_nothing(database: Database) -> None:
    fill(database)
    migrate(database)
    with database.read() as connection:
        assert connection.execute(select(tables.log_head.c.position)).scalar() == 15


def test_the_command_of_alembic_works_on_the_store_of_the_settings(tmp_path: Path) -> None:
    """Those who know Alembic type its commands: without a store, with a wrong one, for a new revision."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copy(ROOT / "alembic.ini", checkout)
    shutil.copytree(ROOT / "alembic", checkout / "alembic")
    store = tmp_path / "store.db"

    def alembic(*words: str, url: str = f"sqlite:///{store}") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("alembic")), *words],
            cwd=checkout, env={**os.environ, "VOLSCHED_DATABASE_URL": url}, capture_output=True, text=True,
            timeout=HANG_SECONDS,
        )  # fmt: skip

    assert alembic("upgrade", "head").returncode == 0
    assert alembic("current").stdout.split()[0] == newest()
    assert store.stat().st_mode & 0o777 == 0o600
    made = alembic("revision", "-m", "limit ranges")
    assert made.returncode == 0, made.stderr
    assert (checkout / "alembic" / "versions" / f"{int(newest()) + 1:04}_limit_ranges.py").exists()
    nowhere = alembic("upgrade", "head", url=f"sqlite:///{tmp_path}/nowhere/x.db")
    assert "nowhere does not exist; create it" in nowhere.stderr
    for refused in (nowhere, alembic("current", url="mysql://x"), alembic("upgrade", "head", "--sql")):
        assert refused.returncode != 0
        assert refused.stderr.startswith("error: ")
        assert "Traceback" not in refused.stderr
