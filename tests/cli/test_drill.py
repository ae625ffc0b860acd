"""`volsched drill`: list, run, decide again, rehearse; what is told, and that one's own store is only read."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import unsynced_store
from volsched.binding.recovery import Recovered
from volsched.kube.meta import ZONE
from volsched.lab.drills.redecision import redecide
from volsched.lab.drills.rehearsal import copied, read_only, rehearse
from volsched.log.database import Database
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import SECOND
from volsched.scheduling.rules.profile import PROFILES

CLASS = {**LOCAL, "metadata": {"name": "made"}, "provisioner": "nobody.example.com"}


@pytest.fixture
def file(store_file: Path) -> Path:
    """A store with two pods placed, one that fits nowhere, and one whose binding waits for a provisioner."""
    with unsynced_store(store_file) as database:
        fill(database)
    return store_file


def fill(database: Database) -> None:
    nodes = [node(f"n{number}", **{ZONE: f"z{number}"}) for number in (1, 2)]
    stepped = Stepped(database, [LOCAL, CLASS, *nodes, volume("small", "2Gi", "n1"), volume("large", "9Gi", "n2")])
    stepped.settle()
    for name, size in (("a", "1Gi"), ("b", "2Gi")):
        stepped.create(claim(name, size), pod(f"pod-{name}", name))
        stepped.settle()
    stepped.create(claim("c", "50Gi"), pod("pod-c", "c"), claim("d", "1Gi", "made"), pod("pod-d", "d"))
    stepped.settle()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_drill_is_listed_in_a_line(run: Run) -> None:
    listed = run("drill", "list")
    assert listed.code == 0
    for name in ("sim", "sim-foreign", "replay", "rehearse"):
        assert any(line.split()[:1] == [name] and len(line.split()) > 6 for line in listed.out.splitlines())
    items = json.loads(run("drill", "list", "-o", "json").out)["items"]
    assert all(it["about"] for it in items)


def test_a_seed_is_played_and_told_choice_by_choice(run: Run) -> None:
    first, second = (run("drill", "run", "sim", "--seed", "5", "--trace", "-o", "json") for _ in range(2))
    assert (first.code, first.err) == (0, second.err)
    told = json.loads(first.out)
    assert (told["passed"], told["facts"]["runs"], told["head"]) == (True, "1", json.loads(second.out)["head"])
    assert "create node name=n1 zone=z1  # done" in first.err
    assert {it["invariant"] for it in told["invariants"]} == {1, 2, 3, 4, 5, 6, 7, 8, 9, 14}


def test_seeds_are_played_by_a_scenario_of_ones_own(run: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("about: crashes alone\nwhere: local\nchances: {crash: 1, others: 0}\nlength: 8\n")
    ran = run("drill", "run", str(scenario), "--seeds", "1..3", "--jobs", "1")
    assert ran.code == 0
    lines = {line.strip().rpartition("  ")[0].strip(): line.split()[-1] for line in ran.out.splitlines() if line}
    assert (lines["runs"], lines["writes by others"], int(lines["crashes"]) > 0) == ("3", "0", True)
    assert ran.out.splitlines()[-1] == "passed"


def test_a_kept_schedule_is_played_again(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept.yaml"
    kept.write_text("where: local\nschedule:\n- create node name=n1\n- step scheduler-1\n- wait ms=5\n")
    ran = run("drill", "run", "sim", "--schedule", str(kept), "--trace")
    assert ran.code == 0
    assert [line.partition("  #")[0] for line in ran.err.splitlines()] == [
        "create node name=n1", "step scheduler-1", "wait ms=5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("run", "peace"), "volsched drill list"),
        (("run", "sim", "--seeds", "5..2"), "1..250"),
        (("run", "sim", "--schedule", "nowhere.yaml"), "nowhere.yaml"),
        (("replay", "--profile", "best"), "parity, volsched"),
        (("rehearse", "--backup", "monday.jsonl", "--db", "store.db"), "give one of them"),
    ],
)
def test_a_mistake_is_said_with_its_remedy(run: Run, words: tuple[str, ...], names: str) -> None:
    ran = run("drill", *words)
    assert (ran.code, names in ran.err) == (2, True)


def test_requests_decided_again_by_the_same_rules_come_out_the_same(run: Run, file: Path) -> None:
    before = digest(file)
    told = json.loads(run("drill", "replay", "--db", str(file), "-o", "json").out)
    assert told["redecided"]
    assert told["verdicts"] == {"the same": 3, "unschedulable both times": 1}
    assert told["recorded"] == told["again"]
    assert told["recorded"]["wastedBytes"] == (1 + 7) << 30
    assert told["recorded"]["zones"] == {"z1": 2, "z2": 1}
    assert digest(file) == before


def test_another_configuration_decides_otherwise_and_that_is_counted(run: Run, file: Path, tmp_path: Path) -> None:
    """Under scoring by another shape, the largest disk is taken first: what is left differs, and is told."""
    config = tmp_path / "config.yaml"
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    profile = {"name": "roomy", "scoring": {"policy": "upstream", "shape": shape}}
    config.write_text(json.dumps({"profile": "roomy", "profiles": [profile]}))
    told = json.loads(run("drill", "replay", "--db", str(file), "--config", str(config), "-o", "json").out)
    assert (told["profile"], told["verdicts"]["another node"]) == ("roomy", 1)
    (changed,) = told["changed"]
    assert (changed["pod"], changed["recorded"]["node"], changed["again"]["node"]) == ("default/pod-a", "n1", "n2")
    assert told["again"]["wastedBytes"] > told["recorded"]["wastedBytes"]
    table = run("drill", "replay", "--db", str(file), "--config", str(config))
    assert "DECIDED AGAIN under profile roomy" in table.out


def test_a_range_leaves_earlier_requests_out(run: Run, file: Path) -> None:
    every = json.loads(run("drill", "replay", "--db", str(file), "-o", "json").out)
    later = json.loads(run("drill", "replay", "--db", str(file), "--from", "20", "-o", "json").out)
    assert 0 < later["requests"] < every["requests"]


def test_a_range_that_ends_before_it_begins_is_refused_and_an_empty_one_says_so(run: Run, file: Path) -> None:
    ran = run("drill", "replay", "--db", str(file), "--from", "40", "--to", "10")
    assert (ran.code, "exchange them" in ran.err) == (2, True)
    ran = run("drill", "replay", "--db", str(file), "--from", "55")
    assert (ran.code, "no request was recorded" in ran.out) == (0, True)


def test_a_zone_that_got_no_pod_counts_for_the_skew(run: Run, file: Path) -> None:
    told = json.loads(run("drill", "replay", "--db", str(file), "--to", "20", "-o", "json").out)["recorded"]
    assert (told["zones"], told["zoneSkew"]) == ({"z1": 1, "z2": 0}, 1)


def test_a_rehearsal_recovers_a_copy_and_leaves_the_store_alone(run: Run, file: Path) -> None:
    before, listing = digest(file), sorted(os.listdir(file.parent))
    ran = run("drill", "rehearse", "--db", str(file), "-o", "json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["in_flight"], told["passed"], told["double_binds"]) == (1, True, 0)
    (found,) = told["bindings"]
    assert (found["pod"], found["outcome"]) == ("default/pod-d", "resumed")
    assert told["facts"]["still open after its own time"].startswith("1 after")
    assert digest(file) == before
    assert {name for name in os.listdir(file.parent) if not name.startswith("store.db-")} <= set(listing)


def test_a_rehearsal_goes_beyond_deadlines_on_request(run: Run, file: Path) -> None:
    told = json.loads(run("drill", "rehearse", "--db", str(file), "--seconds", "700", "-o", "json").out)
    assert (told["rolled_back"], told["recovery_ms"]["bindings"]) == (1, 1)
    assert list(told["retained"]) == [
        "undecided: a provisioner may still be working on it; its volume goes to this claim"
    ]


def test_on_both_engines_a_store_is_only_read_and_rehearsed_from_when_it_was_copied(database: Database) -> None:
    """The log was silent for an hour, in which the binding's deadline passed."""
    fill(database)
    read_only(database)
    with database.read() as connection:
        head = read_head(connection)
    assert (
        redecide(database, profile=PROFILES["parity"], after=0, until=head.position).verdicts["another node"] == 1
    )
    with copied(database, now=head.at + 3_600 * SECOND) as copy:
        found = rehearse(copy)
    assert [it.outcome for it in found.recovery.bindings] == [Recovered.ROLLED_BACK]
    assert list(found.ends.values()) == ["rolled-back"]


def test_a_rehearsal_takes_a_backup(run: Run, file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "monday.jsonl"
    assert run("backup", str(backup), "--db", str(file)).code == 0
    ran = run("drill", "rehearse", "--backup", str(backup))
    assert ran.code == 0
    assert "default/pod-d" in ran.out
    assert ran.out.rstrip().splitlines()[-1].split()[-2:] == ["resumed", "waiting"]
    assert ran.out.startswith("REHEARSED on a copy")


def test_a_store_that_is_opened_for_a_drill_refuses_writes(database: Database) -> None:
    read_only(database)
    with pytest.raises(Exception, match="read-only"):
        _delete_head(database)


def _delete_head(database: Database) -> None:
    with database.write() as connection:
        database.dialect.begin_write(connection)
        connection.execute(text("DELETE FROM log_head"))
