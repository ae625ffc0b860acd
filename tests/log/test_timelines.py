"""What the log tells of an object beyond its present state, before and after its past is archived."""

from pathlib import Path

import pytest

from tests.support.archived_stores import put
from tests.support.histories import SECOND
from tests.support.store_samples import NOW, change_volume, create_volume, delete_volume, must
from volsched.log.database import Database
from volsched.log.events.streams import ObjectLife
from volsched.log.reads.event_audit import WrittenField, last_written, lives
from volsched.log.reads.tail import read_head

STREAM = "volume/a"


def test_every_life_of_a_name_is_shown(sqlite: Database) -> None:
    must(sqlite, create_volume("a"), now=NOW)
    must(sqlite, create_volume("b"), delete_volume("a"), now=NOW + SECOND)
    must(sqlite, create_volume("a"), now=NOW + 2 * SECOND)
    with sqlite.read() as connection:
        first, second = lives(connection, STREAM)
        assert (first.born, first.ended_at) == (1, NOW + SECOND)
        assert (second.born, second.ended_at) == (4, None)
        assert lives(connection, "volume/never") == []


@pytest.mark.parametrize("deleted", [False, True])
def test_of_what_is_archived_the_base_is_known(sqlite: Database, tmp_path: Path, deleted: bool) -> None:
    must(sqlite, create_volume("a"), change_volume("a", {"status": {"phase": "Bound"}}))
    if deleted:
        must(sqlite, delete_volume("a"))
    with sqlite.read() as connection:
        (before,) = lives(connection, STREAM)
        end = read_head(connection).position
    must(sqlite, create_volume("b"))
    put(sqlite, end, tmp_path / "archive.jsonl")
    with sqlite.read() as connection:
        assert lives(connection, STREAM) == ([] if deleted else [ObjectLife(before.uid, 2)])
        assert last_written(connection, STREAM, "status", "phase") is None


def test_the_last_write_of_a_field_is_reported(sqlite: Database) -> None:
    must(sqlite, create_volume("a"), now=NOW)
    must(sqlite, change_volume("a", {"status": {"phase": "Bound"}}), now=NOW + SECOND)
    must(sqlite, change_volume("a", {"metadata": {"labels": {"x": "y"}}}), now=NOW + 2 * SECOND)
    with sqlite.read() as connection:
        assert last_written(connection, STREAM, "status", "phase") == WrittenField(2, NOW + SECOND, "Bound")
        assert last_written(connection, STREAM, "metadata", "labels", "x") == WrittenField(
            3, NOW + 2 * SECOND, "y"
        )
        assert last_written(connection, STREAM, "metadata", "labels", "z") is None
