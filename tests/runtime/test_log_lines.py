"""What a process logs of its work: one line for each thing that happened, with ids that the questions take."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.cli.app import app
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision
from volsched.log.leases import acquire, release
from volsched.log.transaction import execute
from volsched.questions.context import QuestionContext
from volsched.questions.registry import ask, model_of, question
from volsched.runtime.clock import SECOND
from volsched.runtime.log_format import LogFormat, LogLevel, configure_logging
from volsched.runtime.log_lines import log_commits


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    for name in ("volsched", "workers"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def logged(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


def asked(database: Database, name: str, /, **parameters: Any) -> list[dict[str, Any]]:
    wanted = question(name)
    context = QuestionContext(store=database, now=0)
    items: list[dict[str, Any]] = ask(wanted, context, model_of(wanted)(**parameters))["items"]
    return items


def test_a_pod_is_placed_and_bound_in_two_lines_whose_ids_history_and_cause_take(
    sqlite: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogLevel.INFO, LogFormat.JSON)
    log_commits(sqlite)
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0")])
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    placed, bound = [it for it in logged(capsys) if it.get("pod") == "default/db"]
    assert placed["message"] == "pod default/db placed on node-0, with 1 claim to bind"
    assert (placed["level"], placed["logger"]) == ("info", "volsched.scheduling")
    assert bound["message"].startswith("pod default/db bound to node-0 after ")
    assert placed["binding"] == bound["binding"]
    assert asked(sqlite, "history", kind="binding", name=bound["binding"])
    tree = asked(sqlite, "audit cause", position=str(placed["position"]))
    assert any(it["position"] == placed["position"] for it in tree)


def test_a_refusal_is_a_warning_with_its_reason_and_repeated_ones_are_not_told_again(
    sqlite: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogLevel.WARNING, LogFormat.JSON)
    log_commits(sqlite)
    stepped = Stepped(sqlite, [LOCAL, node("node-0")])
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    (line,) = logged(capsys)
    assert line["level"] == "warning"
    assert "found no node: 0/1 nodes are available" in line["message"]
    assert asked(sqlite, "audit attempts", name="db", namespace="default")[0]["attempt"] == line["attempt"]
    (alone,) = asked(sqlite, "history", kind="binding", name=line["attempt"])
    assert (alone["position"], alone["reason"]) == (line["position"], line["reason"])
    assert [it["position"] for it in asked(sqlite, "audit cause", position=line["attempt"])] == [line["position"]]


def test_a_rollback_says_why(sqlite: Database, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogLevel.WARNING, LogFormat.TEXT)
    log_commits(sqlite)
    made = LOCAL | {"metadata": {"name": "made"}, "provisioner": "disks.example.com"}
    stepped = Stepped(sqlite, [made, node("node-0"), claim("data", "5Gi", "made")])
    stepped.create(pod("db", "data", annotations={"volsched.io/bind-timeout-seconds": "5"}))
    stepped.until(lambda: any(it.state == "rolled-back" for it in stepped.bindings()))
    line = next(it for it in capsys.readouterr().err.splitlines() if "rolled back" in it)
    assert "WARNING binding: binding of pod default/db to node-0 rolled back after" in line
    assert "context deadline exceeded" in line
    assert f"[binding={stepped.bindings()[0].id} position=" in line


def test_leases_of_roles_are_reported_and_turns_of_workers_only_in_detail(
    sqlite: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogLevel.INFO, LogFormat.JSON)
    log_commits(sqlite)
    first = acquire(sqlite, name="controller", holder="controller/a", now=SECOND, ttl=SECOND)
    assert acquire(sqlite, name="wait-for-bound", holder="w", now=SECOND, ttl=SECOND) is not None
    assert acquire(sqlite, name="controller", holder="controller/a", now=2 * SECOND, ttl=SECOND) is not None
    second = acquire(sqlite, name="controller", holder="controller/b", now=60 * SECOND, ttl=SECOND)
    assert first is not None
    assert second is not None
    assert release(sqlite, second)
    assert [(it["level"], it["message"]) for it in logged(capsys)] == [
        ("info", "lease controller taken by controller/a"),
        ("warning", "lease controller taken over by controller/b: controller/a did not renew it"),
        ("info", "lease controller given up by controller/b"),
    ]


def test_a_transaction_that_is_slow_is_reported_with_its_positions(
    sqlite: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(LogLevel.WARNING, LogFormat.JSON)
    log_commits(sqlite, slow_seconds=0)
    made = NewEvent(stream="node/n1", type="NodeCreated", data={"patch": {"metadata": {"name": "n1"}}})
    command = Command(actor="test", streams=("node/n1",), decide=lambda _: Decision(events=(made,)))
    (outcome,) = execute(sqlite, [command], now=1)
    assert not isinstance(outcome, Exception)
    (line,) = logged(capsys)
    assert line["message"].startswith("slow transaction: 1 events of test took ")
    assert (line["position"], line["lastPosition"], line["events"]) == (1, 1, 1)


def test_names_of_others_begin_no_line_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogLevel.INFO, LogFormat.TEXT)
    logging.getLogger("volsched.scheduling").info("pod %s", "a\n2026 INFO forged \x1b[31m")
    (line,) = capsys.readouterr().err.splitlines()
    assert "\\n2026 INFO forged \\u001b[31m" in line


def test_a_command_logs_on_request_and_else_keeps_silent(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0"), volume("disk", "5Gi", "node-0")])
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    url = str(sqlite.engine.url)
    ran = CliRunner().invoke(app, ["--log-level", "info", "--log-format", "json", "schedule", "--db", url])
    assert ran.exit_code == 0, ran.output
    messages = [json.loads(line)["message"] for line in ran.stderr.splitlines()]
    assert "pod default/db placed on node-0, with 1 claim to bind" in messages
    again = CliRunner().invoke(app, ["schedule", "--db", url])
    assert (again.exit_code, again.stderr) == (0, "")
    wrong = CliRunner().invoke(app, ["schedule", "--db", url], env={"VOLSCHED_LOG_LEVEL": "loud"})
    assert wrong.exit_code == 2
    assert "VOLSCHED_LOG_LEVEL: Input should be 'debug', 'info', 'warning' or 'error'" in wrong.stderr
