"""`volsched status` and `volsched top`: one glance at a store, or at a server."""

import json
import os
import pty
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from sqlalchemy import text
from typer.testing import CliRunner

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.patience import HANG_SECONDS, wait_until
from tests.support.serving import served
from volsched.cli.app import app
from volsched.cli.status_output import age, size
from volsched.cli.top import is_ended, single_keys
from volsched.kube.meta import ZONE
from volsched.log.database import Database
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import SECOND

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


def scene(database: Database) -> None:
    disks = [volume("disk-0", "5Gi", "node-0"), volume("disk-1", "7Gi", "node-0")]
    stepped = Stepped(database, [LOCAL, node("node-0", **{ZONE: "a"}), *disks])
    stepped.create(claim("data", "4Gi"), pod("db", "data"), claim("huge", "90Gi"), pod("giant", "huge"))
    stepped.settle()


def ran(*words: str) -> str:
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_glance_shows_who_waits_what_is_left_and_who_leads(sqlite: Database) -> None:
    scene(sqlite)
    lines = ran("status", "--db", str(sqlite.engine.url)).splitlines()
    assert any(it.startswith("pods: ") and "1 without a node, the oldest for" in it for it in lines)
    assert any(
        it.split() == [*["1", "node(s)", "didn't", "find", "available", "persistent", "volumes", "to", "bind"]]
        for it in lines
    )
    assert "bindings: none in flight" in lines
    assert any(" ".join(it.split()) == "local a 2 7 GiB 5 GiB" for it in lines)
    assert any(it.startswith("leases: controller ") for it in lines)
    assert ran("top", "--times", "1", "--db", str(sqlite.engine.url)).splitlines()[2:5] == lines[2:5]


def test_a_server_says_the_same_from_what_it_keeps_up(sqlite: Database) -> None:
    scene(sqlite)
    with served(sqlite) as up:
        url = str(up.http.base_url).rstrip("/")
        local = json.loads(ran("status", "-o", "json", "--db", str(sqlite.engine.url)))

        def same() -> bool:
            remote = json.loads(ran("--server", url, "status", "-o", "json"))
            return all(remote[it] == local[it] for it in ("pods", "pending", "storage", "claims", "bindings"))

        wait_until(same)


def test_a_past_moment_is_shown_as_the_log_has_it_and_nothing_that_is_beside_the_log(sqlite: Database) -> None:
    stepped = Stepped(sqlite, [LOCAL, node("node-0", **{ZONE: "a"}), volume("disk-0", "5Gi", "node-0")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.plan_and_write()
    with sqlite.read() as connection:
        midway = read_head(connection).position
    store = ("--db", str(sqlite.engine.url), "-o", "json")
    then = json.loads(ran("status", *store))
    stepped.settle()
    told = json.loads(ran("status", "--as-of", str(midway), *store))
    same = ("position", "pods", "pending", "oldestPendingSince", "storage", "claims", "bindings")
    assert {it: told[it] for it in same} == {it: then[it] for it in same}
    assert [it["state"] for it in told["bindings"]] != []
    assert json.loads(ran("status", *store))["bindings"] == []
    assert (told["effects"], told["leases"], "integrity" in told) == ([], [], False)
    lines = ran("status", "--as-of", str(midway), "--db", str(sqlite.engine.url)).splitlines()
    assert any(it.startswith("bindings in flight: 1 ") for it in lines)
    assert not any(it.startswith(("leases:", "work:")) for it in lines)


def test_the_last_verification_is_noted_with_its_outcome(sqlite: Database) -> None:
    scene(sqlite)
    store = ("--db", str(sqlite.engine.url))

    def integrity() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(ran("status", *store, "-o", "json"))["integrity"]
        return told

    assert integrity() == {"verified": None, "anchor": None}
    ran("verify", *store)
    sound = integrity()["verified"]
    with sqlite.read() as connection:
        assert (sound["position"], sound["ok"]) == (read_head(connection).position, True)
    with sqlite.engine.begin() as connection:
        connection.execute(text("UPDATE volumes SET phase = 'Lost' WHERE key = 'disk-0'"))
    assert CliRunner().invoke(app, ["verify", *store]).exit_code == 5
    assert integrity()["verified"]["ok"] is False
    assert integrity()["verified"]["at"] > sound["at"]


def test_top_without_a_terminal_says_what_to_use_instead(sqlite: Database) -> None:
    result = CliRunner().invoke(app, ["top", "--db", str(sqlite.engine.url)])
    assert result.exit_code == 2
    assert "volsched status" in result.stderr


def test_sizes_and_ages_are_as_people_say_them() -> None:
    assert [size(it) for it in (0, 1023, 1536, 500 * 2**30, 2**40, 2**63)] == [
        "0 B", "1023 B", "1.5 KiB", "500 GiB", "1 TiB", "unlimited",
    ]  # fmt: skip
    moment = "1970-01-01T00:00:00Z"
    assert [age(moment, it * SECOND) for it in (3, 59, 61, 7265, 3 * 86400)] == [
        "3.0 s", "59 s", "1 min 1 s", "2 h 1 min", "3 d",
    ]  # fmt: skip


def test_top_ends_with_q_and_leaves_the_terminal_as_it_was() -> None:
    outer, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    with single_keys(inner) as keys:
        os.write(outer, b"x")
        assert not is_ended(keys, seconds=0.01)
        os.write(outer, b"q")
        assert is_ended(keys, seconds=HANG_SECONDS)
    assert termios.tcgetattr(inner) == before
    os.close(outer)
    os.close(inner)


def live(*words: str, then: Callable[[int], None]) -> tuple[int, bytes]:
    """Exit code and output of `top` on a terminal, to which something is done when its first picture stands."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        os.execve(sys.executable, [sys.executable, "-m", "volsched", "top", *words], environment)
    shown = b""
    try:
        while b"leases:" not in shown:
            shown += os.read(terminal, 65536)
        then(terminal)
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:
        pass
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, shown


def press_ctrl_c(terminal: int) -> None:
    os.write(terminal, b"\x03")


def test_top_ended_with_ctrl_c_has_not_failed(sqlite: Database) -> None:
    code, shown = live("--db", str(sqlite.engine.url), then=press_ctrl_c)
    assert (code, b"Traceback" in shown) == (0, False)


def test_what_ends_top_is_not_wiped_away_with_its_picture(sqlite: Database) -> None:
    with ExitStack() as running:
        url = running.enter_context(served(sqlite)).url
        code, shown = live("--server", url, "--interval", "0.1", then=lambda _: running.close())
    said = shown.rpartition(b"error:")[2]
    assert (code, b"cannot be reached" in said, b"\x1b[2K" in said) == (1, True, False), shown[-2000:]
