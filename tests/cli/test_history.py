"""`volsched history` and `diff`: what people see of one object, of one binding, and between two moments."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import node


def test_the_timeline_of_an_object_names_its_causes(run: Run, story: str) -> None:
    items = json.loads(run("history", "pv", "n1-small", "--db", story, "-o", "json").out)["items"]
    words = [it["what"].partition(":")[0].partition(",")[0] for it in items]
    assert words == [
        "created",
        "status.phase=Available",
        "assumed",
        "annotation pv.kubernetes.io/bound-by-controller=yes",
        "annotation pv.kubernetes.io/bound-by-controller removed",
        "assumption taken off",
    ]
    undone = items[4]
    assert undone["actor"] == "worker/test"
    assert undone["causedBy"] == f"binding {undone['binding']}: leg 0 releasing"
    assert undone["cause"] < undone["position"]


def test_all_forms_tell_the_same(run: Run, story: str) -> None:
    items = json.loads(run("history", "pvc", "default/small", "--db", story, "-o", "json").out)["items"]
    read = list(csv.DictReader(io.StringIO(run("history", "pvc", "small", "--db", story, "-o", "csv").out)))
    assert [(row["position"], row["what"]) for row in read] == [(str(it["position"]), it["what"]) for it in items]
    table = run("history", "pvc", "small", "-n", "default", "--db", story).out.splitlines()
    assert table[0].split()[:3] == ["POSITION", "AT", "ACTOR"]
    assert [line.split()[0] for line in table[1:]] == [str(it["position"]) for it in items]


def test_pages_go_on_where_the_one_before_ended(run: Run, story: str) -> None:
    first = run("history", "pod", "db", "--db", story, "-o", "json", "--limit", "2")
    told = json.loads(first.out)
    token = told["metadata"]["continue"]
    assert f"there is more: --after {token}" in first.err
    second = json.loads(run("history", "pod", "db", "--db", story, "-o", "json", "--after", token).out)
    whole = json.loads(run("history", "pod", "db", "--db", story, "-o", "json").out)["items"]
    assert told["items"] + second["items"] == whole
    assert "metadata" not in second


def test_a_window_by_time_and_by_position(run: Run, story: str) -> None:
    whole = json.loads(run("history", "pv", "n0-small", "--db", story, "-o", "json").out)["items"]
    late = run("history", "pv", "n0-small", "--db", story, "-o", "json", "--since", "2027-01-15T09:00:00Z").out
    late_items = json.loads(late)["items"]
    assert [it["what"] for it in late_items] == ["status.phase=Released"]
    before = str(late_items[0]["position"] - 1)
    for option in ("--until", "--as-of"):
        early = json.loads(run("history", "pv", "n0-small", "--db", story, "-o", "json", option, before).out)[
            "items"
        ]
        assert early == whole[:-1]


def test_everything_of_a_binding(run: Run, story: str) -> None:
    (undone,) = json.loads(run("audit", "rollbacks", "--db", story, "-o", "json").out)["items"]
    items = json.loads(run("history", "binding", undone["binding"], "--db", story, "-o", "json").out)["items"]
    assert {it["object"] for it in items} >= {"volume/n1-small", "claim/default/small", "pod/default/db"}
    assert {it["binding"] for it in items} == {undone["binding"]}
    assert items[-1]["what"] == "binding rolled-back"
    # As a line of the log has it: the id alone.
    caused = json.loads(run("audit", "cause", undone["binding"], "--db", story, "-o", "json").out)["items"]
    assert {it["position"] for it in caused} == {it["position"] for it in items}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["history", "pv", "n1-smal"], 3, "did you mean n1-small"),
        (["history", "volum", "n1-small"], 3, 'there is no kind "volum"'),
        (["history", "binding", "nothing"], 3, 'there is no binding "nothing"'),
        (["history", "pv", "n1-small", "--after", "x"], 2, "is not where a page ended"),
        (["history", "pv", "n1-small", "--since", "soon"], 2, '"soon" is neither a position nor a time'),
        (["history", "pv", "n1-small", "--since", "9", "--until", "3"], 2, "a beginning before the end"),
        (["history", "pv", "n1-small", "--until", "3", "--as-of", "3"], 2, "give one of them"),
        (["history", "pv", "n1-small", "--until", "9999"], 3, "position 9999 does not exist yet"),
        (["diff", "--from", "9", "--to", "3"], 2, "swap them"),
        (["diff", "bindings", "--from", "9"], 2, "bindings are not objects"),
    ],
)
def test_what_cannot_be_answered(run: Run, story: str, words: list[str], code: int, told: str) -> None:
    ran = run(*words, "--db", story)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


def test_the_world_between_two_moments(run: Run, story: str) -> None:
    late = ["--from", "2027-01-15T10:00:00Z", "--db", story]
    items = json.loads(run("diff", *late, "-o", "json").out)["items"]
    assert {(it["kind"], it["name"], it["change"]) for it in items} == {
        ("Pod", "default/db", "deleted"),
        ("PersistentVolumeClaim", "default/small", "deleted"),
        ("PersistentVolume", "n0-small", "changed"),
    }
    (volume,) = json.loads(run("diff", "pv", *late, "-o", "json").out)["items"]
    assert (volume["what"], volume["patch"]) == ("status.phase=Released", {"status": {"phase": "Released"}})
    nothing = run("diff", "sc", *late)
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing differs" in nothing.err


def test_what_was_changed_back_does_not_differ(run: Run, story: str) -> None:
    """The volume was pre-bound and freed within these positions."""
    told = json.loads(run("history", "pv", "n1-small", "--db", story, "-o", "json").out)["items"]
    first, *_, last = [it["position"] for it in told][2:]
    between = ["--from", str(first - 1), "--to", str(last), "--db", story, "-o", "json"]
    names = [it["name"] for it in json.loads(run("diff", "pv", *between).out)["items"]]
    assert "n1-large" in names
    assert "n1-small" not in names


def test_two_hours_ago_is_a_time(run: Run, tmp_path: Path) -> None:
    db, file = str(tmp_path / "store.db"), tmp_path / "node.yaml"
    run("migrate", "--db", db)
    file.write_text(yaml.safe_dump(node("node-0")))
    assert run("apply", "-f", str(file), "--reason", "a rack more", "--db", db).code == 0
    (made,) = json.loads(run("history", "no", "node-0", "--since", "2h", "--db", db, "-o", "json").out)["items"]
    assert (made["what"], made["reason"]) == ("created", "a rack more")
    (created,) = json.loads(run("diff", "--from", "2h", "--db", db, "-o", "json").out)["items"]
    assert (created["kind"], created["change"]) == ("Node", "created")
    assert json.loads(run("history", "no", "node-0", "--until", "2h", "--db", db, "-o", "json").out)["items"] == []
