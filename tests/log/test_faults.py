"""A disk that is full, a file that is read-only, a store from the future: a clear error, and nothing harmed."""

from pathlib import Path

import pytest
from sqlalchemy import event, text, update

from tests.support.log_chain import check_chain
from tests.support.log_reads import log
from tests.support.store_samples import NOW, create_volume, must, run
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.log.errors import NewerStoreError, NotMigratedError, StoreError
from volsched.log.kept_connections import give_back
from volsched.log.migrations import migrate
from volsched.runtime.writer import Writer


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_full_disk_fails_the_batch_and_the_store_goes_on_when_there_is_room(url: str) -> None:
    """The disk's end is played by SQLite's own limit on pages."""
    database = open_database(url)
    limit = {"pages": 10_000}

    @event.listens_for(database.engine, "checkout")
    def _limited(raw: object, *_: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {limit['pages']}")  # type: ignore[attr-defined]

    writer = Writer(database)
    must(database, create_volume("before"))
    limit["pages"] = 1  # SQLite takes no limit below the present size, so this means: not one page more
    give_back(database.engine)
    futures = [writer.submit(create_volume(f"v{index}")) for index in range(100)]
    while writer.step(NOW):
        pass
    errors = {str(future.exception()) for future in futures if future.exception()}
    assert len(errors) == 1
    assert "the disk is full; nothing was lost" in errors.pop()
    limit["pages"] = 10_000
    give_back(database.engine)
    again = writer.submit(create_volume("after"))
    writer.step(NOW)
    assert again.result().events == 1
    acknowledged = sum(future.exception() is None for future in futures)
    assert len(log(database)) == acknowledged + 2
    check_chain(database)
    database.close()


def test_a_store_from_a_newer_version_is_not_written(database: Database) -> None:
    with database.engine.connect() as connection, connection.begin():
        connection.execute(update(tables.log_head).values(min_writer=99))
    with pytest.raises(NewerStoreError, match="format 99"):
        run(database, create_volume("a"))


def test_a_store_without_tables_says_which_command_makes_them(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(NotMigratedError, match="volsched migrate"):
        run(database, create_volume("a"))
    database.close()


@pytest.mark.parametrize(
    "content", [b"this is not a database, whatever its name says" * 100, b"SQLite format 3\0" + bytes(90)]
)
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.db"
    path.write_bytes(content)
    database = open_database(f"sqlite:///{path}")
    with pytest.raises(StoreError, match=r"odd\.db"):
        run(database, create_volume("a"))
    database.close()
    assert path.read_bytes() == content


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'gone' / 'store.db'}")
    with pytest.raises(StoreError, match="cannot be opened"):
        migrate(database)
    database.close()


@pytest.mark.parametrize("wrong", ["mysql://host/name", "nonsense", ""])
def test_a_url_of_an_unknown_kind_is_refused(wrong: str) -> None:
    with pytest.raises(StoreError, match="sqlite"):
        open_database(wrong)


def test_a_url_that_cannot_be_read_does_not_show_its_password() -> None:
    with pytest.raises(StoreError, match="is not a database URL") as caught:
        open_database("postgresql://me:secret@[::1/name")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_wrong_database_or_host_is_named(url: str) -> None:
    database = open_database(url.replace("/test_", "/nope_"))
    with pytest.raises(StoreError, match="does not exist"):
        run(database, create_volume("a"))
    database.close()
    absent = open_database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreError, match="does not answer"):
        run(absent, create_volume("a"))
    absent.close()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_statement_that_the_server_ends_is_not_mistaken_for_a_lost_connection(database: Database) -> None:
    with database.engine.connect() as connection:
        connection.execute(text("SET statement_timeout = '20ms'"))
        with pytest.raises(Exception, match="statement timeout"):
            connection.execute(text("SELECT pg_sleep(5)"))
    assert must(database, create_volume("a"))[0].position == 1
