"""Rebuilding: wrong views become right, right ones stay, and writers go on meanwhile."""

import pytest
from sqlalchemy import select

from tests.support.histories import fill, log, sql, views
from tests.support.manifest_samples import sample
from tests.support.store_samples import change_volume, create_volume, must
from tests.support.views import writing
from volsched.kube.kinds import key_of
from volsched.log import tables
from volsched.log.base import EVERY
from volsched.log.database import Database
from volsched.log.errors import BrokenLogError
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.log.integrity import verify as rebuilding
from volsched.log.integrity.replay import Folded, fold_log
from volsched.log.integrity.verify import rebuild, verify
from volsched.log.rows import VIEWS
from volsched.runtime.clock import system_clock
from volsched.runtime.system import local_cluster

DAMAGE = (
    "UPDATE volumes SET phase = 'Lost', rv = 1 WHERE key = 'a'",
    "DELETE FROM volumes WHERE key = 'b'",
    "INSERT INTO volumes (key, uid, rv, version, manifest, deleting) VALUES ('x', '', 1, 1, '{}', FALSE)",
    "DELETE FROM bindings WHERE id = 'b2'",
    "UPDATE attempts SET count = 9",
)


def test_views_become_what_the_log_says_and_the_log_stays(database: Database) -> None:
    fill(database)
    right, events = views(database), log(database)
    sql(database, *DAMAGE)
    repair = rebuild(database)
    assert views(database) == right
    assert log(database) == events
    assert {(it.table, it.key) for it in repair.findings} == {
        ("volumes", "a"), ("volumes", "b"), ("volumes", "x"), ("bindings", "b2"), ("attempts", "1"),
    }  # fmt: skip
    assert repair.position == 15
    assert verify(database).ok
    assert rebuild(database).findings == []


def test_a_wrong_leg_that_holds_another_ones_place_is_put_right(database: Database) -> None:
    """The index grants an open volume once: the wrong row must go before the right one can come."""
    fill(database)
    right = views(database)
    sql(
        database,
        "UPDATE binding_legs SET volume = 'z' WHERE binding = 'b2'",
        "UPDATE binding_legs SET volume = 'b', open = TRUE WHERE binding = 'b1'",
    )
    rebuild(database)
    assert views(database) == right


def test_empty_views_are_filled_from_the_log(database: Database) -> None:
    fill(database)
    right = views(database)
    sql(database, *(f"DELETE FROM {name}" for name in right))
    assert len(rebuild(database).findings) == sum(map(len, right.values()))
    assert views(database) == right


def test_a_wrong_snapshot_is_dropped(database: Database) -> None:
    must(database, create_volume("a"), *(change_volume("a", {"metadata": {"n": str(n)}}) for n in range(EVERY)))
    sql(database, "UPDATE snapshots SET state = '{}'")
    assert [it.table for it in rebuild(database).findings] == ["snapshots"]
    assert views(database, tables.snapshots) == {"snapshots": []}
    assert verify(database).ok


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("UPDATE events SET actor = 'me' WHERE position = 6", "position 6"),
        ("UPDATE log_head SET position = 20", "the head, which says 20"),
    ],
    ids=["an event", "the head"],
)
def test_nothing_is_derived_from_a_log_that_does_not_verify(database: Database, edit: str, message: str) -> None:
    fill(database)
    sql(database, *DAMAGE, edit)
    wrong = views(database)
    with pytest.raises(BrokenLogError, match=message):
        rebuild(database)
    assert views(database) == wrong


def test_what_is_written_between_comparison_and_lock_is_caught_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that builds on a wrong row, and one that makes a new row, while we are not looking."""
    fill(database)
    sql(database, *DAMAGE)
    catch_up = rebuilding._catch_up

    def meanwhile(database: Database, folded: Folded) -> None:
        must(database, change_volume("a", {"metadata": {"labels": {"late": "yes"}}}), create_volume("late"))
        catch_up(database, folded)

    monkeypatch.setattr(rebuilding, "_catch_up", meanwhile)
    assert rebuild(database).position == 17
    assert verify(database).ok
    (row,) = (row for row in views(database)["volumes"] if row[0] == "a")
    assert '"late":"yes"' in row[5]
    assert '"phase":"Bound"' in row[5]


def test_a_long_tail_is_caught_up_before_the_lock_is_taken(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database)
    monkeypatch.setattr(rebuilding, "BRIEF", 5)
    with database.read() as connection:
        behind = fold_log(connection, until=4)
    rebuilding._catch_up(database, behind)
    assert behind.head.position == 15


def test_writers_go_on_while_views_are_repaired(url: str, database: Database) -> None:
    fill(database)
    damage = "UPDATE volumes SET phase = 'Lost' WHERE key = 'a'"
    with writing(url) as told:
        rounds = 0
        while rounds < 5 or len(told) < 20:
            rounds += 1
            assert rounds < 1_000, "the writer does not get on"
            sql(database, damage)
            repaired = {(it.key, it.column) for it in rebuild(database).findings}
            assert repaired == {("a", "phase")}
    assert told == list(dict.fromkeys(told))
    report = verify(database)
    assert report.ok
    assert set(told) <= {it.position for it in log(database)}


def test_an_object_of_every_kind_gets_its_row(database: Database) -> None:
    """The typed columns of a new kind are easily forgotten, and then the first write fails."""
    cluster = local_cluster(database, clock=system_clock, new_uid=iter(map(str, range(100))).__next__)
    for kind in sorted(NOUN_OF_KIND, key=lambda it: it != "Namespace"):
        manifest = sample(kind)
        cluster.create(kind, manifest)
        key = key_of(kind, manifest)
        with database.read() as connection:
            row = connection.execute(select(VIEWS[NOUN_OF_KIND[kind]][0]).filter_by(key=key)).one()
        assert row.version == 1
    assert verify(database).ok
