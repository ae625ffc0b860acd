"""What a newcomer runs into: words that kubectl has taught, slips of the pen, remedies taken at their word."""

import json
import os
import pty
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, claim, node, on_node, pod, volume
from volsched import Engine
from volsched.cli.console import table_of
from volsched.runtime.clock import SECOND, rfc3339, system_clock
from volsched.scheduling.rules.failure_memory import NODE_REJECTED, REJECTED_NODES


def apply(run: Run, db: str, *manifests: dict[str, Any]) -> None:
    ran = run("apply", "-f", "-", "--db", db, stdin=yaml.safe_dump_all(manifests).encode())
    assert ran.code == 0, ran.err


CLUSTER = (LOCAL, node("n1"), node("n2"), volume("disk", "5Gi", "n1"), claim("data", "4Gi"))


# --- a remedy does what it says -------------------------------------------------------------------------


def test_the_remedy_for_a_missing_store_makes_that_store(run: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "my stores.db")
    told = run("get", "pv", "--db", file)
    assert told.code == 1
    remedy = told.err.rpartition("run: volsched ")[2]
    assert run(*shlex.split(remedy)).code == 0
    assert run("get", "pv", "--db", file).code == 0


def test_a_password_is_not_printed_with_the_remedy(run: Run) -> None:
    assert "secret" not in run("get", "pv", "--db", "sqlite:////nowhere/ada:secret@host.db").err.replace(
        "/nowhere/ada:secret@host.db; ", ""
    )


def test_a_pod_put_on_its_node_by_hand_gets_its_volumes_by_the_command_that_is_shown(run: Run, db: str) -> None:
    apply(run, db, *CLUSTER, on_node(pod("db", "data"), "n1"))
    listed = json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"]
    assert listed[0]["state"] == "without its volumes; see: volsched explain pod default/db"
    told = run("explain", "pod", "db", "--db", db)
    assert (told.code, "stay Pending" in told.out) == (4, True)
    (remedy,) = (line for line in told.out.splitlines() if "run: volsched" in line)
    words = shlex.split(remedy.partition("run: volsched ")[2])
    assert words == ["bind", "claim", "default/data", "--node", "n1"]
    assert run(*words, "--db", db).code == 0
    assert json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"][0]["state"] == "bound"
    assert run("explain", "pod", "db", "--db", db).code == 0


def test_binding_is_not_suggested_where_the_node_cannot_serve_the_claims(run: Run, db: str) -> None:
    apply(run, db, *CLUSTER, on_node(pod("db", "data"), "n2"))
    told = run("explain", "pod", "db", "--db", db)
    assert "n2 cannot serve its claims; delete the pod and create it without spec.nodeName" in told.out
    assert "volsched bind claim" not in told.out
    assert run("bind", "claim", "data", "--node", "n2", "--db", db).code == 4
    run("delete", "pod", "db", "--db", db)
    apply(run, db, pod("db", "data"))
    assert json.loads(run("schedule", "--db", db, "-o", "json").out)["pods"][0]["node"] == "n1"


def test_manifests_without_nodes_are_answered_with_how_to_look_at_the_store(
    run: Run, db: str, tmp_path: Path
) -> None:
    apply(run, db, *CLUSTER)
    run("schedule", "--db", db)
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod("db", "data")))
    alone = run("explain", "pod", "db", "-f", str(file))
    assert (alone.code, "name the store to lay them over: --db" in alone.err) == (2, True)
    assert run("explain", "pod", "db", "-f", str(file), "--db", db).code == 0


def test_manifests_as_people_write_them_say_nothing_of_phases(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([*CLUSTER, pod("db", "data")]))
    ran = run("explain", "pod", "db", "-f", str(file))
    assert (ran.code, "default/data gets disk" in ran.out) == (0, True)


def test_a_volume_that_is_added_in_a_simulation_can_be_used(run: Run, db: str, tmp_path: Path) -> None:
    apply(run, db, LOCAL, node("n1"), claim("data", "4Gi"), pod("db", "data"))
    file = tmp_path / "more.yaml"
    file.write_text(yaml.safe_dump(volume("disk", "5Gi", "n1")))
    told = json.loads(run("simulate", "--add", str(file), "--db", db, "-o", "json").out)
    assert [it["to"] for it in told["waitedBefore"]["placed"]] == ["n1"]


# --- words that kubectl has taught ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "pod", "db", "-n", "shop"],
        ["explain", "po", "shop/db"],
        ["explain", "pods", "db", "--namespace", "shop"],
        ["history", "pod/db", "-n", "shop"],
        ["history", "po", "shop/db"],
        ["audit", "who", "pod/db", "-n", "shop"],
        ["audit", "who", "po", "db", "-n", "shop"],
        ["audit", "attempts", "db", "-n", "shop"],
    ],
)
def test_objects_are_named_as_everywhere(run: Run, db: str, words: list[str]) -> None:
    wanting = pod("db")
    wanting["metadata"]["namespace"] = "shop"
    apply(run, db, node("n1"), wanting)
    run("schedule", "--db", db)
    assert run(*words, "--db", db).code == 0


def test_explain_refuses_two_namespaces(run: Run, db: str) -> None:
    assert run("explain", "pod", "shop/db", "-n", "other", "--db", db).code == 2


def test_until_idle_may_be_said_and_is_what_happens_anyhow(run: Run, db: str) -> None:
    apply(run, db, *CLUSTER, pod("db", "data"))
    said = run("schedule", "--until-idle", "--db", db, "-o", "json")
    assert json.loads(said.out)["pods"][0]["state"] == "bound"
    assert run("schedule", "--db", db, "-o", "json").out == said.out


def test_until_idle_ends_with_6_when_its_time_is_over(run: Run, db: str) -> None:
    made = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "disks.example.com"}
    apply(run, db, made, node("n1"), claim("data", "1Gi", "made"), pod("db", "data"))
    late = run("schedule", "--until-idle", "--timeout", "0.2", "--db", db)
    assert (late.code, "volsched in-flight and volsched status say for what" in late.err) == (6, True)
    assert "waits for disks.example.com" in run("in-flight", "--db", db).out


# --- what is not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["audit", "volume", "dusk"], "disk"),
        (["audit", "claims-of", "dusk"], "disk"),
        (["audit", "who", "pv", "dusk"], "disk"),
        (["audit", "attempts", "dc"], "default/db"),
        (["audit", "node", "n11"], "n1"),
        (["history", "pv/dusk"], "disk"),
    ],
)
def test_names_that_never_were_end_with_3_and_near_names(run: Run, db: str, words: list[str], near: str) -> None:
    apply(run, db, *CLUSTER, pod("db", "data"))
    ran = run(*words, "--db", db)
    assert (ran.code, near in ran.err.partition("did you mean")[2]) == (3, True), ran.err


def test_names_that_are_history_are_answered_though_nothing_was_found(run: Run, db: str) -> None:
    apply(run, db, node("n1"))
    run("delete", "node", "n1", "--db", db)
    ran = run("audit", "node", "n1", "--db", db)
    assert (ran.code, ran.err.strip()) == (0, "nothing was planned for node n1 in that time")
    later = run("history", "no", "n1", "--since", "2099-01-01", "--db", db)
    assert (later.code, later.err.strip()) == (0, "nothing happened to node n1 in that time")


def test_a_time_to_come_is_not_the_past(run: Run, db: str) -> None:
    for verb in ("get", "describe"):
        ran = run(verb, "node", "n1", "--as-of", "2099-01-01T00:00:00Z", "--db", db)
        assert (ran.code, "is still to come" in ran.err) == (2, True)


# --- what is printed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "describe", "delete", "history", "diff", "audit cause"])
def test_usage_does_not_bracket_twice(run: Run, verb: str) -> None:
    (usage,) = (it for it in run(*verb.split(), "--help").out.splitlines() if "Usage:" in it)
    assert "[[" not in usage
    assert "…" not in usage


def test_a_narrow_terminal_breaks_cells_and_cuts_nothing_off() -> None:
    table = table_of("class", "domain", "claims")
    table.add_row("local-ssd", "topology.example.com/rack=basement-17", "1")
    narrow = Console(width=30)
    with narrow.capture() as captured:
        narrow.print(table)
    words = [it for row in captured.get().splitlines()[1:] for it in row.split()]
    domain = "".join(it for it in words if it not in {"local-ssd", "local-s", "sd", "1"})
    assert domain == "topology.example.com/rack=basement-17"


def test_export_says_what_it_wrote_and_where(run: Run, db: str, tmp_path: Path) -> None:
    apply(run, db, node("n1"))
    ran = run("export", str(tmp_path / "log.jsonl"), "--db", db)
    assert (ran.code, ran.out) == (0, "")
    assert "positions 1 to 1 are in" in ran.err
    assert "positions" not in run("export", "-", "--db", db).err


def test_no_colour_where_it_is_not_wanted(run: Run, db: str) -> None:
    """On a terminal, which is where colours would be."""
    apply(run, db, *CLUSTER)

    def shown(**more: str) -> bytes:
        leader, follower = pty.openpty()
        pid = os.fork()
        if pid == 0:
            for number in (1, 2):
                os.dup2(follower, number)
            environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "100", **more}
            words = ["-m", "volsched", "get", "pv", "disk", "-o", "json", "--db", db]
            os.execve(sys.executable, [sys.executable, *words], environment)
        os.close(follower)
        parts = []
        try:
            while part := os.read(leader, 65536):
                parts.append(part)
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.close(leader)
        return b"".join(parts)

    assert b"\x1b[3" in shown()
    assert b"\x1b[3" not in shown(NO_COLOR="1")


# --- the library says the same --------------------------------------------------------------------------


def test_the_library_explains_as_the_command_does(run: Run, db: str) -> None:
    """Also of a node that turned the pod away a moment ago, which neither tries again yet."""
    refused = pod("db", "data")
    # Later than the nodes come, however long that takes: one that has changed since is tried again.
    now = rfc3339(system_clock() + 60 * SECOND)
    refused["metadata"]["annotations"] = {REJECTED_NODES: "n1"}
    refused["status"] = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": NODE_REJECTED, "lastTransitionTime": now}
        ]
    }
    dump = [*CLUSTER, refused]
    ran = run("import", "-f", "-", "--db", db, stdin=yaml.safe_dump_all(dump).encode())
    assert ran.code == 0, ran.err
    printed = json.loads(run("explain", "pod", "db", "--db", db, "-o", "json").out)
    with Engine.open(db) as engine:
        assert json.loads(json.dumps(engine.explain("db"))) == printed
        assert engine.explain("db", node="n2")["nodes"] == 1
        with pytest.raises(LookupError, match="n9"):
            engine.explain("db", node="n9")
    assert not printed["fits"]
    assert any("previously rejected" in reason for it in printed["refused"] for reason in it["reasons"])
