"""Reads of the history are part of it, on both engines, of callers near and far."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.api.access.secured import Secured, issue_token, secured
from tests.support.serving import served
from volsched.api.access.callers import Role
from volsched.api.access.tls import Authority
from volsched.api.limits import Limits
from volsched.cli.app import app
from volsched.log.database import Database
from volsched.log.events.streams import AUDIT_READS
from volsched.log.integrity.verify import verify
from volsched.log.reads.event_audit import EVERYTHING
from volsched.log.reads.tail import tail
from volsched.questions.audit.decisions import reads

ROOT = "/apis/volsched.io/v1"


def test_who_asked_what_is_recorded(database: Database, authority: Authority, tmp_path: Path) -> None:
    with secured(database, authority, tmp_path) as api:
        auditor = api.with_token(issue_token(database, "inspector", Role.AUDITOR))
        auditor.get(f"{ROOT}/history/pods/shop/db?limit=5")
        auditor.get(f"{ROOT}/audit/rollbacks")
        api.with_certificate("ada", Role.ADMIN).get(f"{ROOT}/diff?from=1")
        # Neither what is no history, nor what nobody is told.
        auditor.get("/api/v1/pods")
        api.with_certificate("eve", Role.VIEWER).get(f"{ROOT}/history/pods/shop/db")
        api.client().get(f"{ROOT}/history/pods/shop/db")
    with served(database) as local:
        local.http.get(f"{ROOT}/audit/orphans")
    with database.read() as connection:
        answer = reads(connection, EVERYTHING, after=None, limit=10)
        assert [(it["actor"], it["question"], it["client"]) for it in answer.items] == [
            ("api/test", f"GET {ROOT}/audit/orphans", "127.0.0.1"),
            ("cert/ada", f"GET {ROOT}/diff?from=1", "127.0.0.1"),
            ("token/inspector", f"GET {ROOT}/audit/rollbacks", "127.0.0.1"),
            ("token/inspector", f"GET {ROOT}/history/pods/shop/db?limit=5", "127.0.0.1"),
        ]
        first = reads(connection, EVERYTHING, after=None, limit=3)
        rest = reads(connection, EVERYTHING, after=first.after, limit=3)
        assert (first.items + rest.items, rest.after) == (answer.items, None)
    assert verify(database).ok


def test_what_cannot_be_recorded_is_not_told(api: Secured) -> None:
    auditor = api.with_certificate("ada", Role.AUDITOR)
    with api.database.migrating() as connection:
        connection.exec_driver_sql("ALTER TABLE events RENAME TO away")
    try:
        assert auditor.get(f"{ROOT}/history/pods/shop/db").status_code == 500
    finally:
        with api.database.migrating() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO events")


def test_a_long_question_is_cut(api: Secured) -> None:
    api.with_certificate("ada", Role.AUDITOR).get(f"{ROOT}/history/{'x' * 5000}")
    with api.database.read() as connection:
        (event,) = tail(connection, after=0, limit=10)
    assert event.stream == AUDIT_READS
    assert len(event.data) < 700


def test_the_audit_shows_who_read_it(api: Secured, tmp_path: Path) -> None:
    api.with_certificate("ada", Role.AUDITOR).get(f"{ROOT}/audit/rollbacks")
    done = CliRunner().invoke(app, ["audit", "reads", "--db", str(tmp_path / "store.db")])
    assert done.exit_code == 0
    assert f"cert/ada   GET {ROOT}/audit/rollbacks   127.0.0.1" in done.stdout


def test_reads_beyond_the_rate_do_not_fill_the_log(sqlite: Database) -> None:
    with served(sqlite, limits=Limits(requests_per_second=0.1)) as local:
        codes = [local.http.get(f"{ROOT}/audit/rollbacks").status_code for _ in range(3)]
    with sqlite.read() as connection:
        assert (codes, len(tail(connection, after=0, limit=10))) == ([200, 429, 429], 1)


@pytest.mark.parametrize("what", ["describe/nodes/n", "namespaces/shop/explain/db", "status"])
def test_to_describe_explain_or_count_what_was_is_to_read_the_history(api: Secured, what: str) -> None:
    past = f"{ROOT}/{what}?asOf=0"
    assert api.with_certificate("eve", Role.VIEWER).get(past).status_code == 403
    api.with_certificate("ada", Role.AUDITOR).get(past)
    with api.database.read() as connection:
        (event,) = tail(connection, after=0, limit=10)
        assert (event.stream, event.actor) == (AUDIT_READS, "cert/ada")


def test_to_try_something_on_what_was_is_to_read_the_history(api: Secured) -> None:
    past, drain = f"{ROOT}/simulate?asOf=0", {"drain": ["n"]}
    assert api.with_certificate("eve", Role.VIEWER).post(past, json=drain).status_code == 403
    told = api.with_certificate("ada", Role.AUDITOR).post(past, json=drain)
    assert (told.status_code, "n" in told.json()["message"]) == (404, True)
    with api.database.read() as connection:
        assert [it.stream for it in tail(connection, after=0, limit=10)] == [AUDIT_READS]
