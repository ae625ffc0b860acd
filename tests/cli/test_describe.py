"""`volsched describe`: the object, what was decided about it, and what was told of it."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Run
from tests.support.clusters import Stepped
from tests.support.fresh_stores import unsynced_store


@pytest.fixture
def db(told_store: tuple[str, int]) -> str:
    return told_store[0]


def section(text: str, title: str) -> list[str]:
    """The lines of a section, without their indent."""
    lines = text.splitlines()
    start = lines.index(f"{title}:") + 1
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return [line.strip() for line in lines[start:end]]


def test_a_bound_pod_shows_how_it_came_to_its_node(run: Run, db: str) -> None:
    ran = run("describe", "pod", "db", "--db", db)
    assert ran.code == 0
    assert section(ran.out, "Claims") == ["data: Bound → disk-0"]
    binding, leg = section(ran.out, "Bindings")
    assert "committed; pod default/db on node-0" in binding
    assert leg == "default/data → disk-0  bound"
    assert section(ran.out, "Attempts")[0].startswith("planned on node-0, score ")
    _, scheduled = section(ran.out, "Events")
    assert scheduled.split()[:2] == ["Normal", "Scheduled"]
    assert scheduled.endswith("Successfully assigned default/db to node-0")


def test_a_waiting_pod_shows_why(run: Run, db: str) -> None:
    ran = run("describe", "pod", "shop/waiting", "--db", db)
    assert section(ran.out, "Claims") == ["wide: Pending"]
    last, reason = section(ran.out, "Attempts")[:2]
    assert last.startswith("unschedulable, ")
    assert reason == "2 nodes: node(s) didn't find available persistent volumes to bind (node-0, node-1)"
    assert "Bindings:     <none>" in ran.out
    assert "Scheduled " not in ran.out


def test_a_binding_under_way_shows_its_assumption_on_everything_it_holds(run: Run, db: str) -> None:
    told = {
        kind: json.loads(run("describe", kind, name, "-o", "json", "--db", db).out)
        for kind, name in (("pv", "disk-1"), ("pod", "late"), ("pvc", "more"))
    }
    assumed = told["pv"]["assumption"]
    assert (assumed["node"], assumed["patch"]["spec"]["claimRef"]["name"]) == ("node-1", "more")
    assert told["pod"]["assumption"]["binding"] == assumed["binding"]
    assert {it["bindings"][0]["id"] for it in told.values()} == {assumed["binding"]}
    assert told["pvc"]["usedBy"] == ["default/late"]
    text = run("describe", "pv", "disk-1", "--db", db).out
    assert section(text, "Assumed")[0] == f"by binding {assumed['binding']}, for node node-1"


def test_an_assumption_that_no_longer_counts_is_not_shown(run: Run, db: str) -> None:
    assert "Assumed:" not in run("describe", "pv", "disk-0", "--db", db).out


def test_a_volume_shows_the_binding_that_wrote_it(run: Run, db: str) -> None:
    told = json.loads(run("describe", "pv", "disk-0", "-o", "json", "--db", db).out)
    (binding,) = told["bindings"]
    assert told["object"]["metadata"]["annotations"]["volsched.io/binding"] == binding["id"]
    assert binding["legs"] == [
        {"claim": "default/data", "volume": "disk-0", "state": "bound", "open": False, "provisioned": False,
         "reason": None}
    ]  # fmt: skip


def test_a_binding_shows_every_step(run: Run, db: str) -> None:
    id_ = json.loads(run("describe", "pod", "db", "-o", "json", "--db", db).out)["bindings"][0]["id"]
    steps = section(run("describe", "binding", id_, "--db", db).out, "Steps")
    assert "BindingPlanned" in " ".join(steps)
    assert steps[-1].split()[2:4] == ["BindingMoved", f"binding/{id_}"]


def test_a_node_shows_its_pods_and_bindings(run: Run, told_store: tuple[str, int]) -> None:
    db, position = told_store
    told = json.loads(run("describe", "node", "node-0", "-o", "json", "--db", db, "--as-of", str(position)).out)
    assert told["pods"] == ["default/db"]
    assert [it["pod"] for it in told["bindings"]] == ["default/db"]


def test_the_past_is_described_as_it_was(run: Run, told_store: tuple[str, int]) -> None:
    db, position = told_store
    now = json.loads(run("describe", "pod", "db", "-o", "json", "--db", db).out)
    then = json.loads(run("describe", "pod", "db", "-o", "json", "--db", db, "--as-of", str(position)).out)
    assert (then["object"], then["bindings"], then["events"]) == (now["object"], now["bindings"], now["events"])
    before = json.loads(run("describe", "pod", "db", "-o", "json", "--db", db, "--as-of", "8").out)
    assert (before["bindings"], before["events"]) == ([], [])
    assert "nodeName" not in before["object"]["spec"]


def test_a_binding_that_failed_is_reported_with_its_reason_and_scheduled_nothing(
    run: Run, tmp_path: Path, told_store: tuple[str, int]
) -> None:
    shutil.copyfile(told_store[0], tmp_path / "copy.db")
    with unsynced_store(tmp_path / "copy.db") as database:
        stepped = Stepped(database, owner="after")
        stepped.cluster.delete("Node", "node-1")
        stepped.until(lambda: not any(row.open for row in stepped.bindings()))
    told = json.loads(run("describe", "pod", "late", "-o", "json", "--db", str(tmp_path / "copy.db")).out)
    assert (told["bindings"][-1]["state"], "node-1" in told["bindings"][-1]["reason"]) == ("rolled-back", True)
    assert "Scheduled" not in [it["reason"] for it in told["events"]]


def test_several_are_several_documents(run: Run, db: str) -> None:
    first, second = yaml.safe_load_all(run("describe", "pods", "db", "late", "-o", "yaml", "--db", db).out)
    assert (first["object"]["metadata"]["name"], second["object"]["metadata"]["name"]) == ("db", "late")


def test_an_event_of_an_earlier_object_of_the_name_is_not_its_own(
    run: Run, tmp_path: Path, told_store: tuple[str, int]
) -> None:
    db = str(tmp_path / "copy.db")
    shutil.copyfile(told_store[0], db)
    pod = run("get", "pod", "waiting", "-n", "shop", "-o", "json", "--db", db).out.encode()
    assert run("delete", "pod", "shop/waiting", "--db", db).code == 0
    assert run("create", "-f", "-", "--db", db, stdin=pod).code == 0
    told = json.loads(run("describe", "pod", "shop/waiting", "-o", "json", "--db", db).out)
    assert (told["events"], told["attempts"]) == ([], [])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pod",), 2, "which one? volsched describe pod NAME"),
        (("pod,pv", "x"), 2, "of one kind"),
        (("pod", "dbb"), 3, "did you mean default/db?"),
        (("pod", "db", "-o", "csv"), 2, "describe has no form csv"),
        (("pod", "db", "--as-of", "soon"), 2, "neither a position nor a time"),
    ],
)
def test_a_wrong_question_is_answered_with_what_to_ask(
    run: Run, db: str, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = run("describe", *words, "--db", db)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
