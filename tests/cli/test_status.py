"""`volsched status` and `volsched top`: one glance at a store, or at a server."""

import json

from typer.testing import CliRunner

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.patience import wait_until
from tests.support.serving import served
from volsched.cli.app import app
from volsched.cli.status_output import age, size
from volsched.kube.meta import ZONE
from volsched.log.database import Database
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
    assert any(it.startswith("pods: ") and "1 without a node, the oldest since" in it for it in lines)
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
