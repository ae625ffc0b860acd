"""Audit questions in SQL, on both engines: pages, windows, views for reports; asked of a short real history."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, select, text

from tests.support.audit_story import QUIET, tell
from tests.support.clusters import START, Stepped
from tests.support.store_samples import change_volume, create_volume, must
from volsched.lab.bench.audit import QUESTIONS, bench_audit
from volsched.lab.bench.stories import fill_stories
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.events.streams import KIND_OF_NOUN
from volsched.log.integrity.verify import verify
from volsched.log.reads import decision_audit
from volsched.log.reads.event_audit import Window, first_changes, position_since, states_as_of, stream_page, window
from volsched.log.reads.tail import read_head, state_as_of
from volsched.log.retention.archive import archive
from volsched.questions.audit import decisions
from volsched.questions.audit.answers import Answer
from volsched.questions.history import history, volume_history
from volsched.questions.history.history import world_diff

LIMIT = 1_000


@pytest.fixture
def stepped(database: Database) -> Stepped:
    return tell(database)


def rows(connection: Connection, statement: str) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(text(statement)).mappings()]


def test_the_stolen_volume_is_what_the_audit_finds(stepped: Stepped) -> None:
    """One test for all questions: to make a history costs more than to ask."""
    with stepped.database.read() as connection:
        everything = window(connection)
        (undone,) = decisions.rollbacks(connection, everything, after=None, limit=LIMIT).items
        assert undone["failedStep"] == "leg 1 voided (default/large → n1-large)"
        assert "was changed by somebody else" in undone["failedWhy"]
        on_node_0 = decisions.on_node(connection, "node-0", everything, after=None, limit=LIMIT).items
        assert [(it["pod"], it["state"]) for it in on_node_0] == [("default/db", "committed")]
        took = decision_audit.times_to_bound(connection, everything, limit=LIMIT)
        assert {(it.class_name, it.zone) for it in took} == {("local", "zone-a")}
        served = volume_history.claims_of(connection, "n0-small", everything, after=None, limit=LIMIT).items
        assert [(it["claim"], it["data"]) for it in served] == [("default/small", "dirty")]
        everything_of_it = history.causes_of_binding(connection, undone["binding"], limit=LIMIT).items
        assert len(everything_of_it) == len(history.binding_history(connection, undone["binding"], everything,
                                                                after=None, limit=LIMIT).items)  # fmt: skip
        assert max(it["depth"] for it in everything_of_it) >= 4
        _pages_are_all(partial(history.history, connection, "pod/default/db", everything))
    _windows_are_of_time_and_position(stepped.database)
    _what_was_in_flight(stepped, undone["binding"])
    _many_states_are_as_one_by_one(stepped.database)
    _a_diff_is_what_the_folds_say(stepped.database)
    _views_for_reports(stepped.database)
    assert verify(stepped.database).ok


def test_what_was_archived_is_not_missed_but_left_out(sqlite: Database, tmp_path: Path) -> None:
    stepped = tell(sqlite)
    with sqlite.read() as connection:
        began = position_since(connection, START + QUIET)
        whole = history.history(connection, "volume/n0-small", window(connection), after=None, limit=LIMIT).items
    archive(sqlite, until=began - 1, out=tmp_path / "old.jsonl", now=stepped.now + QUIET)
    with sqlite.read() as connection:
        left = window(connection, first=1)
        assert (left.first, left.since) == (began, 0)
        assert position_since(connection, START) == began
        now = history.history(connection, "volume/n0-small", left, after=None, limit=LIMIT).items
        assert now == [it for it in whole if it["position"] >= began] != []
        (served,) = volume_history.claims_of(connection, "n0-small", left, after=None, limit=LIMIT).items
        # When the claim got the volume is archived; that it had it, and that it was dirty, is not.
        assert (served["claim"], served["from"], served["data"]) == ("default/small", None, "dirty")
        assert volume_history.bound_at(connection, "n0-small", position=began)["claim"] == "default/small"
        (undone,) = decisions.rollbacks(connection, left, after=None, limit=LIMIT).items
        assert (undone["node"], undone["failedStep"]) == ("node-1", None)
        assert {it["name"] for it in world_diff(connection, left, after=None, limit=LIMIT).items} >= {"n0-small"}


def test_pages_of_bindings_and_what_measures_them(database: Database) -> None:
    """The bench's own history, small: many bindings share a time, so that a page ends between equals."""
    for _ in fill_stories(database, events=1_500):
        pass
    assert verify(database).ok
    with database.read() as connection:
        everything = window(connection)
        rollbacks = partial(decisions.rollbacks, connection, everything)
        on_node = partial(decisions.on_node, connection, "node-007", everything)
        in_flight = partial(decisions.in_flight, connection, now=0, older_than=0)
        for ask in (rollbacks, on_node, in_flight):
            _pages_are_all(ask)
    rows = list(bench_audit(database, clock=time.perf_counter))
    assert [row.question for row in rows] == [question for question, _, _ in QUESTIONS]
    assert all(row.worst_ms >= row.median_ms > 0 for row in rows)


def test_a_volume_that_is_given_on_directly_is_reported_once_on_either_page(sqlite: Database) -> None:
    must(sqlite, create_volume("disk"))
    for name in ("a", "b", "c"):
        ref = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
        must(sqlite, change_volume("disk", {"spec": {"claimRef": ref}}))
    with sqlite.read() as connection:
        everything, found, token = window(connection), [], None
        for _ in range(3):
            page = volume_history.claims_of(connection, "disk", everything, after=token, limit=1)
            found += page.items
            token = page.after
    assert token is None
    assert [it["claim"] for it in found] == ["shop/a", "shop/b", "shop/c"]
    assert [it["until"] is None for it in found] == [False, False, True]


def _pages_are_all(ask: Callable[..., Answer]) -> None:
    whole = ask(after=None, limit=LIMIT).items
    assert len(whole) > 1
    page = ask(after=None, limit=1)
    found = page.items
    while page.after is not None and len(found) <= len(whole):
        page = ask(after=page.after, limit=1)
        found = found + page.items
    assert found == whole


def _windows_are_of_time_and_position(database: Database) -> None:
    with database.read() as connection:
        head = read_head(connection)
        later = position_since(connection, START + QUIET)
        before, after = window(connection, last=later - 1), window(connection, first=later)
        assert before.until < START + QUIET <= after.since
        assert (after.first, after.last, before.first) == (later, head.position, 1)
        stream = "volume/n0-small"
        split = [*stream_page(connection, stream, before), *stream_page(connection, stream, after)]
        assert split == stream_page(connection, stream, window(connection))
        assert len(stream_page(connection, stream, after)) > 0
        behind = window(connection, first=head.position + 1)
        assert decisions.on_node(connection, "node-0", behind, after=None, limit=LIMIT).items == []
        assert position_since(connection, head.at + 1) == head.position + 1


def _what_was_in_flight(stepped: Stepped, binding: str) -> None:
    events = tables.events
    with stepped.database.read() as connection:
        own = select(events.c.position).where(events.c.stream == f"binding/{binding}").order_by(events.c.position)
        positions = list(connection.execute(own).scalars())
        open_at = []
        for position in range(positions[0] - 1, positions[-1] + 1):
            then = window(connection, last=position)
            found = decisions.in_flight_at_end(connection, then, older_than=0, after=None, limit=LIMIT).items
            open_at += [position for it in found if it["binding"] == binding]
        assert open_at == list(range(positions[0], positions[-1]))
        now = decisions.in_flight(connection, now=stepped.now, older_than=0, after=None, limit=LIMIT)
        assert now.items == []


def _many_states_are_as_one_by_one(database: Database) -> None:
    with database.read() as connection:
        streams = list(connection.execute(select(tables.events.c.stream).distinct()).scalars())
        for position in (0, 20, 40, read_head(connection).position):
            one_by_one = {it: state_as_of(connection, it, position=position) for it in streams}
            assert states_as_of(connection, streams, position=position) == one_by_one
        assert states_as_of(connection, [], position=1) == {}


def _a_diff_is_what_the_folds_say(database: Database) -> None:
    with database.read() as connection:
        head = read_head(connection).position
        for first, last in ((1, head), (10, 40), (30, head), (head + 1, head)):
            within = Window(first, last, 0, 2**62)
            found = world_diff(connection, within, after=None, limit=LIMIT).items
            streams = list(connection.execute(select(tables.events.c.stream).distinct()).scalars())
            objects = [it for it in streams if it.partition("/")[0] in KIND_OF_NOUN.keys() - {"notice"}]
            old = states_as_of(connection, objects, position=first - 1)
            new = states_as_of(connection, objects, position=last)
            manifests = {
                it: (getattr(old[it], "manifest", None), getattr(new[it], "manifest", None)) for it in objects
            }
            differ = {
                it.partition("/")[2] for it, (before, after) in manifests.items() if _bare(before) != _bare(after)
            }
            assert {it["name"] for it in found} == differ
        firsts, looked = first_changes(connection, window(connection), nouns=["volume"], limit=2)
        assert [it.version for it in firsts] == [1, 1]
        assert looked == firsts[-1].position


def _bare(value: Any) -> Any:
    """Without empty maps."""
    if not isinstance(value, dict):
        return value
    return {key: _bare(it) for key, it in value.items() if not (isinstance(it, dict) and not _bare(it))}


def _views_for_reports(database: Database) -> None:
    """Documented in docs/audit.md, for whoever asks with SQL."""
    with database.read() as connection:
        assert set(inspect(connection).get_view_names()) == {
            "audit_attempts", "audit_bindings", "audit_changes", "audit_interventions", "audit_legs",
        }  # fmt: skip
        head = read_head(connection).position
        changes = rows(connection, "SELECT * FROM audit_changes ORDER BY position")
        assert len(changes) == head
        assert {(it["noun"], it["name"]) for it in changes} >= {("pod", "default/db"), ("volume", "n1-large")}
        assert str(changes[0]["at"]).replace(" ", "T").startswith("2027-01-15T08:00:00")
        (undone,) = rows(connection, "SELECT * FROM audit_bindings WHERE state = 'rolled-back'")
        assert (undone["node"], undone["zone"], undone["legs"]) == ("node-1", "zone-b", 2)
        assert float(undone["seconds"]) == pytest.approx(0.1)
        reasons = rows(connection, "SELECT reason FROM audit_changes WHERE type = 'BindingMoved' AND reason <> ''")
        assert any("changed by somebody else" in it["reason"] for it in reasons)
        legs = rows(connection, "SELECT * FROM audit_legs WHERE binding_state = 'committed' ORDER BY leg")
        assert [(it["claim"], it["volume"], it["class_name"], it["zone"]) for it in legs] == [
            ("default/small", "n0-small", "local", "zone-a"),
            ("default/large", "n0-large", "local", "zone-a"),
        ]
        attempts = rows(connection, "SELECT * FROM audit_attempts WHERE outcome = 'unschedulable'")
        assert [it["pod"] for it in attempts] == ["default/web"]
        assert attempts[0]["message"] == json.loads(attempts[0]["detail"])["message"]
        assert rows(connection, "SELECT * FROM audit_interventions") == []
