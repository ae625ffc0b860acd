"""Moments as people write them, in their own zone, and what is said of the time before everything."""

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.cli.conftest import Run
from volsched.cli.moment_option import absolute, local_time
from volsched.log.database import open_database
from volsched.questions.context import QuestionContext
from volsched.questions.get.columns import columns_of
from volsched.questions.get.parameters import OneParameters
from volsched.questions.history.moments import read_duration, spoken_time
from volsched.questions.refusals import MomentError
from volsched.questions.registry import handler_answer, question

NOW = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)
"""A Wednesday."""
SECOND = 1_000_000


def moment(text: str) -> datetime:
    return datetime.fromtimestamp(spoken_time(text, now=int(NOW.timestamp()) * SECOND, zone=UTC) / SECOND, UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2h", "2026-11-18T13:30:00"),
        ("1h30m", "2026-11-18T14:00:00"),
        ("1h30m ago", "2026-11-18T14:00:00"),
        ("2 hours ago", "2026-11-18T13:30:00"),
        ("an hour ago", "2026-11-18T14:30:00"),
        ("1 hour and 30 minutes ago", "2026-11-18T14:00:00"),
        ("3 days, 2 hours ago", "2026-11-15T13:30:00"),
        ("now", "2026-11-18T15:30:00"),
        ("today", "2026-11-18T00:00:00"),
        ("today 09:00", "2026-11-18T09:00:00"),
        ("9:05", "2026-11-18T09:05:00"),
        ("Yesterday", "2026-11-17T00:00:00"),
        ("yesterday at 14:00:30", "2026-11-17T14:00:30"),
        ("last tuesday 14:00", "2026-11-17T14:00:00"),
        ("last  Wednesday", "2026-11-11T00:00:00"),
        ("wed 12:00", "2026-11-18T12:00:00"),
        ("wed 18:00", "2026-11-11T18:00:00"),
        ("thursday", "2026-11-12T00:00:00"),
        ("2026-11-16", "2026-11-16T00:00:00"),
        ("2026-11-16 22:00", "2026-11-16T22:00:00"),
        ("2026-11-16T22:00:00Z", "2026-11-16T22:00:00"),
        ("2026-11-16T22:00:00+02:00", "2026-11-16T20:00:00"),
    ],
)
def test_a_moment_is_what_people_mean(text: str, meant: str) -> None:
    assert moment(text).isoformat() == f"{meant}+00:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "last",
        "t",
        "25:00",
        "tuesday morning",
        "2 fortnights ago",
        "1h30",
        "h",
        "last 2h",
        "9999999999999999h",
    ],
)
def test_what_is_none_is_answered_with_some_that_are(text: str) -> None:
    with pytest.raises(MomentError, match="yesterday 14:00"):
        moment(text)


def test_lengths_may_have_several_parts() -> None:
    assert read_duration("1h30m") == 5400 * SECOND
    assert read_duration("1h30") is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_are_read_and_shown_in_the_zone_of_the_person() -> None:
    assert absolute("2026-11-16 22:00") == "2026-11-16T21:00:00Z"
    assert absolute("2026-07-16 22:00") == "2026-07-16T20:00:00Z"
    assert absolute("2026-11-16T22:00:00Z") == "2026-11-16T22:00:00Z"
    assert (absolute("1234"), absolute("2h")) == ("1234", "2h")
    assert local_time("2026-11-16T22:00:00.123456Z") == "2026-11-16T23:00:00.123+01:00"
    assert local_time("2026-07-16T22:00:00Z") == "2026-07-17T00:00:00+02:00"


@pytest.fixture
def db(told_store: tuple[str, int]) -> str:
    return told_store[0]


MARKS = ("decided then: ", "Created:")


@pytest.mark.usefixtures("berlin")
def test_tables_show_the_zone(run: Run, db: str) -> None:
    shown = run("history", "pod", "db", "--db", db).out.splitlines()[1].split()[1]
    assert shown.endswith(("+01:00", "+02:00"))
    # What a table shows can be given as it stands.
    assert run("history", "pod", "db", "--since", shown, "--db", db).code == 0
    for words in (("explain", "pod", "db"), ("describe", "pod", "db"), ("backup", f"{db}.vbk")):
        (line,) = [it for it in run(*words, "--db", db).out.splitlines() if it.startswith(MARKS) or "taken" in it]
        assert re.search(r"T\d\d:\d\d:\d\d\+0[12]:00", line), line


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    "words",
    [
        "status", "history pod db", "history pv disk-0", "diff --from 1", "orphans", "in-flight", "effects list",
        "uses pvc wide -n shop", "leases list", "reservations list", "token list", "explain pod db", "verify",
        "explain pod db --as-of 40", "explain pod waiting -n shop", "audit who pod db", "audit why pod db",
        "audit attempts pod db", "audit interventions", "audit rollbacks", "audit volume disk-0",
        "audit node node-1", "retention show", "get events -A", "get bindings,attempts -A",
        "simulate --drain node-1", "recover --dry-run",
    ],
)  # fmt: skip
def test_no_answer_for_people_has_a_time_of_another_zone(
    run: Run, db: str, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("VOLSCHED_DATABASE_URL", f"sqlite:///{db}")
    ran = run(*words.split())
    assert ran.code in (0, 4), ran.err
    assert re.findall(r"\d\d:\d\d:\d\d[0-9.]*Z", ran.out + ran.err) == []


def test_before_the_log_begins_it_says_from_when_on_it_knows(run: Run, db: str) -> None:
    ran = run("get", "pods", "--as-of", "1999-01-01", "--db", db)
    assert (ran.code, ran.out) == (0, "")
    assert "the log begins at 20" in ran.err
    ran = run("describe", "pod", "db", "--as-of", "1999-01-01", "--db", db)
    assert (ran.code, "the log begins at 20" in ran.err) == (3, True)


def test_ages_count_to_the_moment_that_is_looked_at(run: Run, db: str) -> None:
    at = run("history", "pod", "db", "--db", db, "-o", "csv").out.splitlines()[1].split(",")[1]
    born = int(datetime.fromisoformat(at).timestamp())
    moment = datetime.fromtimestamp(born + 90, UTC).isoformat()
    database = open_database(f"sqlite:///{db}")
    asked = OneParameters(kind="pod", name="db", as_of=moment)
    context = QuestionContext(store=database, now=(born + 3600) * SECOND)
    (row,) = handler_answer(question("get object"), context, asked).rows
    age = [it.header for it in columns_of("pod", wide=True)].index("AGE")
    assert row.cells()[age] == "90s"
    database.close()
