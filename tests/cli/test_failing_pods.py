"""A pod whose bindings keep failing: nobody says that it fits; the failures are told, and what helps."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.refused_storage import REFUSED, ZONE, simulated
from volsched.log import tables
from volsched.log.database import Database, open_database
from volsched.provisioning.simulated import Simulated
from volsched.scheduling.rules.attempts import FAILED

SAID = {
    "n1": f'Failed to provision volume with StorageClass "sim": node n1 lacks the label {ZONE}',
    "n2": REFUSED,
}
MESSAGE = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'


def failures(stepped: Stepped) -> int:
    attempts = tables.attempts
    with stepped.database.read() as connection:
        return len(list(connection.execute(attempts.select().where(attempts.c.outcome == FAILED))))


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> str:
    """One pod was refused by the provisioner three times, one finds no node, one is where it wants to be.

    The first is in the middle of its third failure. No volume can be made at n1, whatever the provisioner likes.
    """
    path = tmp_path_factory.mktemp("failing") / "store.db"
    shutil.copyfile(migrated_file, path)
    database: Database = open_database(f"sqlite:///{path}")
    zones = [node("n1"), node("n2", **{ZONE: "b"})]
    stepped = Stepped(database, [simulated(failure="refused"), LOCAL, *zones], provisioners=[Simulated()])
    stepped.create(volume("disk", "5Gi", "n1"), claim("held", "4Gi", "local"), pod("placed", "held"))
    stepped.create(claim("big", "9Gi", "local"), pod("late", "big"))
    stepped.create(claim("data", "1Gi", "sim"), pod("db", "data"))
    stepped.until(lambda: failures(stepped) == 3, steps=2_000)
    database.close()
    return str(path)


def told(run: Run, db: str, *words: str) -> Any:
    return json.loads(run(*words, "-o", "json", "--db", db).out)


def test_explain_tells_the_failures_and_never_that_it_fits(run: Run, db: str) -> None:
    ran = run("explain", "pod", "db", "--db", db)
    assert ran.code == 4
    assert "fits on" not in ran.out
    assert ", on node" not in ran.out
    assert "its bindings keep failing: 3 times since " in ran.out
    assert f": {MESSAGE}" in ran.out
    assert "claim default/data → a new volume" in ran.out
    assert "the provisioner says: Failed to provision volume" in ran.out
    assert 'have provisioner "volsched.io/simulated" serve class "sim"' in ran.out


def test_as_json_it_fits_nowhere_and_every_failure_is_reported(run: Run, db: str) -> None:
    found = told(run, db, "explain", "pod", "db")
    assert (found["fits"], found["chosen"], found["runnersUp"]) == (False, None, [])
    failing = found["failing"]
    assert failing["times"] == sum(it["times"] for it in failing["nodes"]) == 3
    for group in failing["nodes"]:
        assert (group["claim"], group["message"]) == ("default/data", MESSAGE)
        assert group["words"] == SAID[group["node"]]
    nodes = {it["node"] for it in failing["nodes"]}
    assert not nodes & set(failing["untried"])
    assert (found["node"], found["refused"]) == (None, [])


def test_a_node_without_the_zone_label_of_the_others_is_named(run: Run, db: str) -> None:
    failing = told(run, db, "explain", "pod", "db")["failing"]
    labelled = [it for it in failing["remedies"] if it.startswith("label n1 with its zone")]
    assert bool(labelled) == ("n1" in {it["node"] for it in failing["nodes"]})


def test_where_no_node_has_the_label_that_is_missing_each_is_named_and_the_provisioner_once(
    run: Run, tmp_path: Path, migrated_file: Path
) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(migrated_file, path)
    database = open_database(f"sqlite:///{path}")
    stepped = Stepped(database, [simulated(), node("n1"), node("n2")], provisioners=[Simulated()])
    stepped.create(claim("data", "1Gi", "sim"), pod("db", "data"))
    stepped.until(lambda: failures(stepped) == 2, steps=2_000)
    database.close()
    remedies = told(run, str(path), "explain", "pod", "db")["failing"]["remedies"]
    labels = [it for it in remedies if it.startswith("label ")]
    assert sorted(labels) == [
        f"label {it} with its zone: kubectl label node {it} {ZONE}=ZONE" for it in ("n1", "n2")
    ]
    assert sum("serve class" in it for it in remedies) == 1


@pytest.mark.parametrize("name", ["placed", "late"])
def test_others_do_not_keep_failing(run: Run, db: str, name: str) -> None:
    assert told(run, db, "explain", "pod", name)["failing"] is None
    assert "keep failing" not in run("explain", "pod", name, "--db", db).out


def test_audit_why_of_a_pod_is_its_last_attempt_with_the_failures(run: Run, db: str) -> None:
    found = told(run, db, "audit", "why", "db")
    assert (found["outcome"], found["message"]) == ("failed", MESSAGE)
    assert found["failure"]["words"] == SAID[found["node"]]
    assert found["failing"]["times"] == 3
    ran = run("audit", "why", "default/db", "--db", db)
    assert "its bindings keep failing: 3 times" in ran.out
    assert "the provisioner says: Failed to provision volume" in ran.out


def test_audit_why_of_a_pod_without_a_node_is_reported_claim_by_claim(run: Run, db: str) -> None:
    ran = run("audit", "why", "late", "--db", db)
    assert "on n1, claim default/big" in ran.out
    assert "  nearest volume disk: " in ran.out
    assert "capacity: wanted at least 9Gi, got 5Gi" in ran.out


def test_one_attempt_is_asked_for_by_its_id(run: Run, db: str) -> None:
    attempt = told(run, db, "audit", "attempts", "db")["items"][-1]["attempt"]
    ran = run("audit", "why", attempt, "--db", db)
    assert "failed in PreBind at " in ran.out
    node_ = told(run, db, "audit", "why", attempt)["node"]
    verdict = told(run, db, "audit", "why", attempt, "--node", node_)["verdict"]
    assert verdict.endswith(f"and its binding failed: {MESSAGE}")


def test_the_past_is_shown_as_it_was_known_then(run: Run, db: str) -> None:
    first = told(run, db, "audit", "attempts", "db")["items"][-1]
    steps = told(run, db, "history", "binding", first["attempt"])["items"]
    before, after = steps[0]["position"], steps[-1]["position"]
    then = told(run, db, "explain", "pod", "db", "--as-of", str(after))
    assert (then["failing"]["times"], then["past"]["outcome"], then["fits"]) == (1, "failed", False)
    assert told(run, db, "audit", "why", "db", "--as-of", str(after))["failing"]["times"] == 1
    ran = run("explain", "pod", "db", "--as-of", str(after), "--db", db)
    assert (ran.code, f"as of position {after}" in ran.out, "keep failing: once" in ran.out) == (4, True, True)
    earlier = told(run, db, "explain", "pod", "db", "--as-of", str(before - 1))
    assert (earlier["past"], earlier["failing"]) == (None, None)


def test_a_refusal_of_the_past_is_reported_claim_by_claim(run: Run, db: str) -> None:
    end = told(run, db, "history", "pod", "late")["items"][-1]["position"]
    ran = run("explain", "pod", "late", "--as-of", str(end), "--db", db)
    assert ran.code == 4
    assert "2 nodes (n1, n2): node(s) didn't find available persistent volumes to bind" in ran.out
    assert "on n1, claim default/big" in ran.out
    assert "nearest volume disk: " in ran.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("explain", "pod", "db", "--as-of", "1"), 3, 'pod "default/db" did not exist at 1'),
        (("explain", "pod", "db", "--as-of", "99999"), 3, "position 99999 does not exist yet"),
        (("explain", "pod", "db", "--as-of", "2", "--node", "n1"), 2, "it goes with none of -f, -k and --node"),
        (("explain", "pod", "db", "--as-of", "soon"), 2, '"soon" is neither a position nor a time'),
        (
            ("audit", "why", "nobody"),
            3,
            'there is no attempt "nobody", and there was no attempt for pod "default/',
        ),
        (("audit", "why", "shop/nobody"), 3, 'Pod "shop/nobody" not found'),
        (("audit", "why", "db", "--as-of", "3"), 3, 'there was no attempt for pod "default/db" up to then'),
    ],
)
def test_what_is_not_there_is_named(run: Run, db: str, words: tuple[str, ...], code: int, message: str) -> None:
    ran = run(*words, "--db", db)
    assert ran.code == code
    assert message in ran.err
