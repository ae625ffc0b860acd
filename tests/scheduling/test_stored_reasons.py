"""Why a pod found no node is stored claim by claim, and small: equal answers are counted, not written again."""

from typing import Any

from sqlalchemy import func, select

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import read_head
from volsched.questions.source import past_explanation
from volsched.runtime.clock import SECOND

FIVE_MINUTES = 310


def waiting(database: Database) -> Stepped:
    volumes = [volume("small", "5Gi", "n2"), volume("tiny", "1Gi", "n8")]
    objects = [LOCAL, *(node(f"n{i}") for i in range(9)), *volumes]
    stepped = Stepped(database, objects)
    stepped.settle()
    stepped.create(claim("data", "8Gi"), pod("db", "data"))
    stepped.settle()
    return stepped


def reasons(database: Database) -> list[dict[str, Any]]:
    with database.read() as connection:
        ((_, state),) = view_at_head(connection).attempts_of("default/db")
    return list(state.made["detail"]["reasons"])


def written(database: Database) -> list[Any]:
    events = tables.events
    asked = select(events.c.type, func.length(events.c.data).label("bytes"))
    with database.read() as connection:
        return list(connection.execute(asked.where(events.c.stream.like("attempt/%")).order_by(events.c.position)))


def test_an_attempt_keeps_claim_volume_rule_wanted_and_got(database: Database) -> None:
    waiting(database)
    (reason,) = reasons(database)
    assert (reason["nodes"], reason["some"]) == (9, ["n0", "n1", "n2", "n3", "n4"])
    (kept,) = reason["claims"]
    assert (kept["claim"], kept["node"], kept["volume"]) == ("default/data", "n2", "small")
    assert kept["rules"] == [{"rule": "capacity", "wanted": "at least 8Gi", "got": "5Gi"}]


def test_the_same_answer_again_is_counted_in_a_few_bytes(database: Database) -> None:
    stepped = waiting(database)
    for _ in range(2):
        stepped.step(after=FIVE_MINUTES * SECOND)
        stepped.settle()
    made, *again = written(database)
    assert (made.type, made.bytes < 2_000) == ("AttemptMade", True)
    assert len(again) >= 2
    assert {(it.type, it.bytes < 40) for it in again} == {("AttemptRepeated", True)}


def test_the_same_message_that_stands_for_something_else_is_stored_anew(database: Database) -> None:
    stepped = waiting(database)
    stepped.create(volume("nearer", "7Gi", "n1"))
    stepped.settle()
    stepped.step(after=FIVE_MINUTES * SECOND)
    stepped.settle()
    with database.read() as connection:
        tried = view_at_head(connection).attempts_of("default/db")
    first, last = tried[0][1].made["detail"], tried[-1][1].made["detail"]
    assert first["message"] == last["message"]
    assert [it["reasons"][0]["claims"][0]["volume"] for it in (first, last)] == ["small", "nearer"]


def test_what_was_stored_is_reported_as_of_a_position_even_if_all_is_changed_since(database: Database) -> None:
    stepped = waiting(database)
    with database.read() as connection:
        then = read_head(connection).position
    stepped.create(volume("large", "9Gi", "n7"))
    stepped.until(lambda: stepped.node_of("db") == "n7")
    told = past_explanation(database, "default/db", as_of=str(then), now=stepped.now)
    assert (told["node"], told["fits"], told["past"]["outcome"]) == (None, False, "unschedulable")
    assert told["past"]["reasons"][0]["claims"][0]["volume"] == "small"
    now = past_explanation(database, "default/db", as_of=f"{then + 1}", now=stepped.now)
    assert now["past"]["attempt"] == told["past"]["attempt"]
    with database.read() as connection:
        end = read_head(connection).position
    assert past_explanation(database, "default/db", as_of=str(end), now=stepped.now)["node"] == "n7"
