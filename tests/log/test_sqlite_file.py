"""A file read by SQLite's own driver: the same present as SQLAlchemy reads, or no answer at all."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.archived_stores import ended
from volsched.log.database import Database
from volsched.log.events.fold import BindingState
from volsched.log.events.streams import NAMED
from volsched.log.observed_cluster import write_observed_pods
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.views import StoreView
from volsched.log.sqlite_file import BeyondFileError, present_state


def everything(look: StoreView) -> list[Any]:
    """All that a look answers, of everything that is there."""
    told: list[Any] = [look.position]
    for named in NAMED:
        for key, state in look.every(named.noun):
            told += [key, state, look.one(named.noun, key), look.notices_about(f"{named.title}/{key}")]
            if isinstance(state, BindingState):
                told += [look.steps_of(key), look.bindings_of("pod", state.plan["pod"])]
                told += [look.bindings_of("claim", leg.claim) for leg in state.legs]
            if named.noun == "pod":
                told.append(look.attempts_of(key))
    return told


def file_of(database: Database) -> Path:
    assert database.file.path is not None
    return database.file.path


def test_the_driver_alone_reads_what_sqlalchemy_reads(sqlite: Database) -> None:
    ended(sqlite)
    lone = {"metadata": {"name": "lone", "namespace": "shop"}}
    write_observed_pods(sqlite, {"shop/lone": lone})
    with sqlite.read() as connection, present_state(file_of(sqlite)) as look:
        assert everything(look) == everything(view_at_head(connection))
        found = look.one("pod", "shop/lone")
        assert found is not None
        assert found.manifest == lone


def test_a_file_that_nobody_may_write_is_read(sqlite: Database) -> None:
    position = ended(sqlite)
    file = file_of(sqlite)
    sqlite.close()
    file.chmod(0o400)
    with present_state(file) as look:
        assert look.position == position


def test_a_reader_sees_one_moment_while_others_write(sqlite: Database) -> None:
    with present_state(file_of(sqlite)) as look:
        before = list(look.every("volume"))
        ended(sqlite)
        assert list(look.every("volume")) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM alembic_version",
        "UPDATE alembic_version SET version_num = '0001'",
        "UPDATE log_head SET min_reader = 1000",
        "DELETE FROM log_head",
        "DROP TABLE volumes",
    ],
)
def test_tables_of_another_program_are_left_to_the_whole_store(sqlite: Database, statement: str) -> None:
    sqlite.close()
    with sqlite3.connect(file_of(sqlite)) as raw:
        raw.execute(statement)
    with pytest.raises(BeyondFileError), present_state(file_of(sqlite)) as look:
        list(look.every("volume"))


def test_what_is_no_store_is_left_to_the_whole_store_and_nothing_is_made(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("no database, but long enough to have a header of one: " * 20)
    for file in (tmp_path / "missing.db", tmp_path, other):
        with pytest.raises(BeyondFileError), present_state(file):
            pass
    assert [it.name for it in tmp_path.iterdir()] == ["other.txt"]


def test_what_was_deleted_is_reported_by_the_log_alone(sqlite: Database) -> None:
    ended(sqlite)
    with present_state(file_of(sqlite)) as look, pytest.raises(BeyondFileError):
        look.deleted_at("volume", "nowhere")
