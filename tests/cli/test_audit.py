"""`volsched audit`: each question, asked as people do, in every form."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import unsynced
from tests.support.half_done import plan_and_die
from tests.support.history_story import story
from tests.support.parked_effects import parked_prebind
from tests.support.serving import served
from volsched.log.database import Database, open_database

__all__ = ["story"]


def ask(run: Run, db: str, *words: str) -> Any:
    ran = run("audit", *words, "--db", db, "-o", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def items(run: Run, db: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(run, db, *words)["items"]
    return found


def rolled_back(run: Run, db: str) -> dict[str, Any]:
    (found,) = items(run, db, "rollbacks")
    return found


def test_what_a_volume_was_bound_to_at_a_time(run: Run, story: str) -> None:
    written = rolled_back(run, story)["failedPosition"] - 1
    then = ask(run, story, "volume", "n1-small", "--at", str(written))
    assert (then["claim"], then["by"], then["phase"]) == ("default/small", "worker/test", "Available")
    assert then["binding"] == rolled_back(run, story)["binding"]
    now = ask(run, story, "volume", "n1-small")
    assert (now["claim"], now["sincePosition"] > written) == (None, True)
    by_time = ask(run, story, "volume", "n0-small", "--as-of", "2027-01-15T09:00:00Z")
    assert (by_time["claim"], by_time["phase"]) == ("default/small", "Bound")
    early = run("audit", "volume", "n1-small", "--at", "1", "--db", story)
    assert (early.code, "there was no volume" in early.err) == (3, True)


def test_every_claim_that_a_volume_served(run: Run, story: str) -> None:
    (tenure,) = items(run, story, "claims-of", "n1-small")
    assert (tenure["claim"], tenure["data"]) == ("default/small", "unused: the claim was never bound to it")
    assert tenure["until"] > tenure["from"]
    (dirty,) = items(run, story, "claims-of", "n0-small")
    assert (dirty["claim"], dirty["data"], dirty["until"]) == ("default/small", "dirty", None)
    (stolen,) = items(run, story, "claims-of", "n1-large")
    assert (stolen["claim"], stolen["data"]) == ("elsewhere/thief", "unknown, so it counts as dirty")
    # A window that begins in the middle still tells when the claim got the volume.
    assert items(run, story, "claims-of", "n0-small", "--since", "2027-01-15T09:00:00Z") == [dirty]


def test_why_this_node_and_not_that(run: Run, story: str) -> None:
    attempt = rolled_back(run, story)["binding"]
    told = ask(run, story, "why", attempt, "--node", "node-0")
    assert told["node"] == "node-1"
    assert told["verdict"].startswith("node-0 would have fitted, with score")
    (latest,) = items(run, story, "attempts", "web")
    assert latest["outcome"] == "unschedulable"
    refused = run("audit", "why", latest["attempt"], "--node", "node-1", "--db", story)
    assert "didn't find available persistent volumes to bind" in refused.out
    missing = run("audit", "why", "nothing", "--db", story)
    assert (missing.code, "volsched audit attempts POD" in missing.err) == (3, True)


def test_all_decisions_touching_a_node(run: Run, story: str) -> None:
    (undone,) = items(run, story, "node", "node-1")
    assert (undone["pod"], undone["state"]) == ("default/db", "rolled-back")
    assert [(leg["claim"], leg["state"]) for leg in undone["legs"]] == [
        ("default/small", "released"),
        ("default/large", "voided"),
    ]
    assert items(run, story, "node", "node-1", "--since", "2027-01-15T09:00:00Z") == []
    assert items(run, story, "node", "node-1", "--until", "2027-01-15T09:00:00Z") == [undone]


def test_rollbacks_name_the_first_failing_step(run: Run, story: str) -> None:
    undone = rolled_back(run, story)
    assert undone["failedStep"] == "leg 1 voided (default/large → n1-large)"
    assert undone["failedWhy"].startswith('PersistentVolume "n1-large" was changed by somebody else')
    (row,) = csv.DictReader(io.StringIO(run("audit", "rollbacks", "--db", story, "-o", "csv").out))
    assert (row["binding"], row["failedStep"]) == (undone["binding"], undone["failedStep"])


def test_in_flight_now_and_then(run: Run, story: str) -> None:
    nothing = run("audit", "in-flight", "--db", story)
    assert (nothing.out, nothing.err) == ("", "nothing is in flight\n")
    failed = rolled_back(run, story)
    (then,) = items(run, story, "in-flight", "--as-of", str(failed["failedPosition"]))
    assert (then["binding"], then["state"]) == (failed["binding"], "prebinding")
    assert items(run, story, "in-flight", "--as-of", str(failed["failedPosition"]), "--older-than", "1m") == []
    assert run("audit", "in-flight", "--older-than", "soon", "--db", story).code == 2


def test_the_causes_of_an_event_and_what_followed(run: Run, story: str) -> None:
    failed = rolled_back(run, story)
    tree = items(run, story, "cause", str(failed["failedPosition"]))
    assert [it["role"] for it in tree[:3]] == ["cause", "event", "consequence"]
    assert tree[-1]["depth"] > tree[1]["depth"]
    assert "binding rolled-back" in [it["what"] for it in tree]
    whole = items(run, story, "cause", "--binding", failed["binding"])
    assert {it["position"] for it in whole} > {it["position"] for it in tree if it["binding"]} - {0}
    cut = run("audit", "cause", str(failed["failedPosition"]), "--limit", "2", "--db", story, "-o", "json")
    assert [it["position"] for it in json.loads(cut.out)["items"]] == [it["position"] for it in tree[:4]]
    assert (json.loads(cut.out)["metadata"], "give a higher --limit" in cut.err) == ({"cut": True}, True)
    assert run("audit", "cause", "9999", "--db", story).code == 3
    assert run("audit", "cause", "9", "--binding", "x", "--db", story).code == 2


def test_time_to_bound_per_class_and_zone(run: Run, story: str) -> None:
    one, every = items(run, story, "latency")
    assert (one["class"], one["zone"], one["count"]) == ("local", "zone-a", 2)
    assert 0 < one["p50"] <= one["p99"] <= every["max"] < 5
    table = run("audit", "latency", "--db", story).out.splitlines()
    assert table[0].split() == ["CLASS", "ZONE", "COUNT", "P50", "P90", "P99", "MAX"]
    assert run("audit", "latency", "--since", "2027-01-15T09:00:00Z", "--db", story).out == ""


def test_a_zone_label_of_old_is_the_zone_of_the_time_to_bound(run: Run, url: str) -> None:
    database = open_database(url)
    unsynced(database)
    old = node("node-0", **{"failure-domain.beta.kubernetes.io/zone": "zone-old"})
    stepped = Stepped(database, (LOCAL, old, node("node-1")))
    stepped.create(volume("disk-0", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))
    stepped.create(volume("disk-1", "9Gi", "node-1"), claim("wide", "8Gi"), pod("late", "wide"))
    stepped.settle()
    database.close()
    zones = [(it["zone"], it["count"]) for it in items(run, url, "latency")]
    assert zones == [("-", 1), ("zone-old", 1), ("all", 2)]


def test_orphans_come_in_every_form(run: Run, story: str) -> None:
    found = items(run, story, "orphans")
    assert ("released", "volume/n0-small") in {(it["kind"], it["object"]) for it in found}
    rows = list(csv.DictReader(io.StringIO(run("audit", "orphans", "--db", story, "-o", "csv").out)))
    assert [row["object"] for row in rows] == [it["object"] for it in found]


def test_a_range_can_be_verified_and_imported_elsewhere(run: Run, story: str, tmp_path: Path) -> None:
    begin, late = str(tmp_path / "begin.jsonl"), str(tmp_path / "late.jsonl")
    assert run("audit", "export", begin, "--until", "2027-01-15T09:00:00Z", "--db", story).code == 0
    assert run("audit", "export", late, "--since", "2027-01-15T09:00:00Z", "--db", story).code == 0
    assert "events verified" in run("import-log", "--check", begin, late).out
    assert "events verified" in run("import-log", "--check", late).out
    copy = str(tmp_path / "copy.db")
    run("migrate", "--db", copy)
    assert run("import-log", "--db", copy, begin).code == 0
    assert rolled_back(run, copy) == rolled_back(run, story)
    table = run("audit", "export", "-", "-o", "csv", "--since", "60", "--until", "61", "--db", story).out
    assert [row["position"] for row in csv.DictReader(io.StringIO(table))] == ["60", "61"]


CLUSTER = (LOCAL, node("node-0"), volume("disk", "2Gi", "node-0"), claim("data", "1Gi"), pod("late", "data"))


@pytest.fixture
def busy(tmp_path: Path, run: Run) -> str:
    """A store that people work on: objects applied by hand, and a binding whose write was given up."""
    db, file = str(tmp_path / "busy.db"), tmp_path / "cluster.yaml"
    run("migrate", "--db", db)
    file.write_text(yaml.safe_dump_all(CLUSTER))
    assert run("apply", "-f", str(file), "--reason", "first rack", "--db", db).code == 0
    database = open_database(f"sqlite:///{db}")
    plan_and_die(Stepped(database, owner="dies"))
    parked_prebind(database)
    database.close()
    return db


def test_who_did_what_by_hand_and_why(run: Run, busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    (parked,) = json.loads(run("effects", "list", "--db", busy, "-o", "json").out)["items"]
    (flying,) = items(run, busy, "in-flight")
    assert flying["pod"] == "default/late"
    assert run("effects", "retry", parked["key"], "--reason", "fire is out", "--db", busy).code == 0
    latest, *earlier = items(run, busy, "interventions")
    assert (latest["who"], latest["command"], latest["reason"]) == ("ada", "effects-retry", "fire is out")
    assert latest["what"] == f"effect {parked['key']} retried"
    assert {it["command"] for it in earlier} == {"apply"}
    assert {it["reason"] for it in earlier} == {"first rack"}
    made = items(run, busy, "who", "pv", "disk")[0]
    assert (made["command"], made["reason"], made["what"]) == ("apply", "first rack", "created")
    first = ask(run, busy, "interventions", "--limit", "2")
    rest = items(run, busy, "interventions", "--after", first["metadata"]["continue"])
    assert [*first["items"], *rest] == [latest, *earlier]
    assert run("verify", "--db", busy).code == 0


def test_a_cancelled_effect_says_why_its_binding_failed(run: Run, busy: str) -> None:
    (parked,) = json.loads(run("effects", "list", "--db", busy, "-o", "json").out)["items"]
    assert run("effects", "cancel", parked["key"], "--reason", " ", "--db", busy).code == 2
    assert run("effects", "cancel", parked["key"], "--reason", "array is gone", "--db", busy).code == 0
    by_hand = items(run, busy, "interventions", "--limit", "10")
    assert {"effects-cancel"} == {it["command"] for it in by_hand if it["binding"]}
    noted = next(it for it in by_hand if it["type"] == "EffectNoted")
    assert (noted["what"], noted["reason"]) == (f"effect {parked['key']} cancelled", "array is gone")
    failed = next(it for it in by_hand if it["what"] == "binding compensating")
    assert failed["reason"] == "cancelled by an operator: array is gone"
    assert run("verify", "--db", busy).code == 0


def test_what_people_do_over_http_is_by_hand_too(run: Run, tmp_path: Path, sqlite: Database) -> None:
    with served(sqlite) as api:
        file = tmp_path / "node.yaml"
        file.write_text(yaml.safe_dump(node("node-0")))
        assert run("apply", "-f", str(file), "--reason", "a rack", "--server", api.url).code == 0
        (made,) = json.loads(run("audit", "interventions", "-o", "json", "--server", api.url).out)["items"]
        assert (made["what"], made["reason"], made["command"]) == ("created", "a rack", "http")
        assert made["actor"] == f"api/{made['who']}"
        # To ask is no intervention.
        asked = json.loads(run("audit", "interventions", "-o", "json", "--server", api.url).out)["items"]
        assert asked == [made]
        (who,) = json.loads(run("audit", "who", "node", "node-0", "-o", "json", "--server", api.url).out)["items"]
        assert who["who"] == made["who"]


def test_conditions_are_shown_in_words(run: Run, tmp_path: Path, db: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump_all([node("node-0"), claim("data", "1Gi"), LOCAL, pod("late", "data")]))
    assert run("apply", "-f", str(file), "--db", db).code == 0
    run("schedule", "--db", db)
    told = run("history", "pod", "late", "--db", db).out
    assert "PodScheduled=False (Unschedulable): 0/1 nodes are available" in told
    assert '[{"' not in told
