"""Opening a store: what is wrong with it is said at once, with the remedy."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.support.histories import sql
from volsched.log.database import Database
from volsched.log.errors import NewerStoreError, NotMigratedError, StoreError
from volsched.log.migrations import administer
from volsched.log.revisions import FORMAT, newest
from volsched.log.store import migrate_store, open_store


def test_a_fresh_file_is_migrated_and_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    assert migrate_store(url) == (None, newest())
    assert migrate_store(url) == (newest(), newest())
    open_store(url).close()


def test_opening_makes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    with pytest.raises(
        NotMigratedError,
        match=r"there is no store in .*; volsched apply and up create one, or run: volsched migrate",
    ):
        open_store(f"sqlite:///{file}")
    assert not file.exists()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"directory .*/gone does not exist; create it"):
        migrate_store(f"sqlite:///{tmp_path / 'gone' / 'new.db'}")


def test_tables_of_a_newer_program_are_opened_and_left_as_they_are(url: str, database: Database) -> None:
    """While an upgrade is under way; the head says from when on that is over (tests/log/test_upgrade.py)."""
    sql(database, "UPDATE alembic_version SET version_num = '9999'")
    open_store(url).close()
    assert migrate_store(url) == ("9999", "9999")
    sql(database, f"UPDATE log_head SET min_reader = {FORMAT + 1}")
    for attempt in (open_store, migrate_store):
        with pytest.raises(NewerStoreError, match=f"readers of format {FORMAT + 1} or newer"):
            attempt(url)


def test_tables_of_an_older_program_and_of_none_are_not_opened(url: str, database: Database) -> None:
    sql(database, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(NotMigratedError, match="the tables are of an older volsched; run: volsched migrate"):
        open_store(url)
    sql(database, "DELETE FROM alembic_version")
    with pytest.raises(NotMigratedError, match="there are no tables of volsched yet; run: volsched migrate"):
        open_store(url)


def test_a_store_for_newer_readers_is_not_opened(url: str, database: Database) -> None:
    sql(database, f"UPDATE log_head SET min_reader = {FORMAT + 1}")
    with pytest.raises(NewerStoreError, match=f"readers of format {FORMAT + 1} or newer"):
        open_store(url)


def test_a_wrong_password_is_reported_and_not_shown(own_postgres: Any) -> None:
    server = own_postgres.get_uri()
    rules = Path(own_postgres.pgdata) / "pg_hba.conf"
    rules.write_text(f"local all stranger scram-sha-256\nhost all stranger all scram-sha-256\n{rules.read_text()}")
    administer(server, "CREATE ROLE stranger LOGIN PASSWORD 'right'")
    administer(server, "SELECT pg_reload_conf()")
    url = make_url(server).set(username="stranger", password="hunter2")
    with pytest.raises(StoreError, match="the server refuses the password; check VOLSCHED_DATABASE_URL") as caught:
        open_store(url.render_as_string(hide_password=False))
    assert "hunter2" not in str(caught.value)
