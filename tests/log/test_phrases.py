"""Packed event data: what is stored is shorter, and whoever reads it gets what was written."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from tests.support.archived_stores import LATER
from volsched.kube.patches import merged
from volsched.log.batch import declare_format
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.durable_files import import_log, lines_of_file
from volsched.log.events.envelope import Redact, canonical
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.migrations import scratch_store
from volsched.log.phrases import PACKED, PHRASES, packed, unpacked
from volsched.log.reads.event_audit import search_events, window
from volsched.log.reads.tail import read_head, read_stream, tail
from volsched.log.retention.archive import archive
from volsched.log.retention.backup import back_up, restore
from volsched.log.retention.export import events_of, manifest_of, write_jsonl
from volsched.log.retention.redaction import redact
from volsched.log.revisions import FORMAT
from volsched.log.tables import events as events_table
from volsched.log.transaction import execute
from volsched.objects.observations import Fact, record_fact

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=9) | st.sampled_from(PHRASES)
TREES = st.recursive(
    LEAVES, lambda it: st.lists(it, max_size=3) | st.dictionaries(st.text(max_size=9), it, max_size=3)
)
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "shop", "uid": "u1", "resourceVersion": "7"},
    "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"},
    "status": {"phase": "Pending"},
}


@given(TREES)
def test_every_text_comes_back_as_it_was(tree: object) -> None:
    for data in ({"patch": tree}, {"reason": tree}):
        whole = canonical(data)
        assert unpacked(packed(whole)) == whole
        # Reports look into the column with the database's own JSON functions.
        json.loads(packed(whole))


def test_a_phrase_keeps_its_place_for_good() -> None:
    assert len(set(PHRASES)) == len(PHRASES)
    assert packed('{"patch":{"status":{"phase":"Bound"}}}') == '"ÀĤ"'


def test_packed_events_are_read_whole_by_every_reader(database: Database) -> None:
    declare_format(database)
    told = record_fact(Fact("PersistentVolumeClaim", "shop/data", CLAIM, 7), actor="observer")
    execute(database, [told], now=1, packs=True)
    whole = canonical({"patch": CLAIM})
    with database.read() as connection:
        stored = connection.execute(text("SELECT data FROM events")).scalar_one()
        assert stored.startswith(PACKED)
        assert len(stored) < len(whole) / 2
        assert all(value in stored for value in ("data", "shop", "u1", "fast"))
        assert connection.execute(text("SELECT reason FROM audit_changes")).scalar_one() is None
        assert [it.data for it in tail(connection, after=0, limit=9)] == [whole]
        assert [it.data for it in read_stream(connection, "claim/shop/data")] == [whole]
        scanned = dialect_of(connection.engine).scan(connection, events_table, order="position")
        assert [row[9] for rows in scanned for row in rows] == [whole]
        for words, found in (("storageClassName", 1), ("FAST", 1), ("slow", 0)):
            assert len(search_events(connection, window(connection), words=words, limit=5)[0]) == found
        read_head(connection)
        declared = connection.execute(text("SELECT min_reader, min_writer FROM log_head")).one()
        assert tuple(declared) == (FORMAT, FORMAT)
    assert not verify(database).findings


def observed(database: Database) -> None:
    """A claim that came, was bound and went, and one of its name that stays; all packed but the deletion."""
    first = merged(CLAIM, {"metadata": {"annotations": {"team.example.com/note": "n"}}})
    bound = merged(first, {"metadata": {"resourceVersion": "8"}, "status": {"phase": "Bound"}})
    again = merged(CLAIM, {"metadata": {"resourceVersion": "10", "uid": "u2"}})
    declare_format(database)
    for version, manifest in ((7, first), (8, bound), (9, None), (10, again)):
        fact = Fact("PersistentVolumeClaim", "shop/data", manifest, version)
        execute(database, [record_fact(fact, actor="observer")], now=version, packs=True)


def texts(database: Database) -> list[str]:
    with database.read() as connection:
        return [it.data for it in tail(connection, after=0, limit=99)]


def stored(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(text("SELECT data FROM events ORDER BY position")).scalars())


def exported(database: Database, directory: Path) -> Path:
    written = io.StringIO()
    with database.read() as connection:
        manifest = manifest_of(connection, now=LATER)
        write_jsonl(written, manifest, events_of(connection, manifest))
    file = directory / "export.jsonl"
    file.write_text(written.getvalue())
    return file


def backed_up(database: Database, directory: Path) -> Path:
    back_up(database, out=directory / "backup.jsonl", now=LATER)
    return directory / "backup.jsonl"


@pytest.mark.parametrize(("write", "read"), [(exported, import_log), (backed_up, restore)])
def test_files_of_a_packed_store_hold_whole_texts_and_make_the_same_store(
    database: Database, tmp_path: Path, write: Callable[..., Path], read: Callable[..., Any]
) -> None:
    observed(database)
    assert [it.startswith(PACKED) for it in stored(database)] == [True, True, False, True]
    file = write(database, tmp_path)
    assert file.read_text().count("storageClassName") >= 2
    with scratch_store() as other:
        read(other, lines_of_file(file))
        assert texts(other) == stored(other) == texts(database)
        assert not verify(other).findings


def test_a_packed_store_is_replayed_repaired_redacted_and_archived(database: Database, tmp_path: Path) -> None:
    observed(database)
    with database.read() as connection:
        assert fold_log(connection).head.position == 4
    with database.write() as connection:
        connection.execute(text("DELETE FROM claims"))
    assert verify(database).findings
    rebuild(database)
    assert not verify(database).findings
    done = redact(database, until=3, what=[Redact.ANNOTATIONS], actor="cli/bob", now=LATER)
    assert done.events == 1
    assert not verify(database).findings
    out = tmp_path / "archive.jsonl"
    archive(database, until=3, out=out, now=LATER)
    assert not verify(database).findings
    assert '"phase":"Bound"' in out.read_text()


def test_a_store_is_only_for_this_format_once_something_is_packed(database: Database) -> None:
    execute(database, [record_fact(Fact("PersistentVolumeClaim", "shop/data", CLAIM, 7), actor="a")], now=1)
    before = texts(database)
    with database.read() as connection:
        assert connection.execute(text("SELECT min_reader FROM log_head")).scalar_one() < FORMAT
    observed(database)
    assert texts(database)[: len(before)] == before
    assert not verify(database).findings
