"""`volsched reservations`: hold, renew, confirm, give up; each with the exit code that says what happened."""

import json

import pytest
from typer.testing import CliRunner, Result

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.cli.app import app
from volsched.log.database import Database


@pytest.fixture
def store(sqlite: Database) -> str:
    disks = [LOCAL, node("n0"), volume("disk", "5Gi", "n0"), claim("data", "4Gi"), pod("db", "data")]
    stepped = Stepped(sqlite, disks)
    stepped.settle()
    stepped.create(volume("spare", "5Gi", "n0"), claim("free", "4Gi"), claim("huge", "90Gi"))
    for name, of in (("web", "free"), ("big", "huge")):
        made = pod(name, of)
        stepped.create(made | {"spec": made["spec"] | {"schedulerName": "theirs"}})
    stepped.settle()
    return str(sqlite.engine.url)


def run(store: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["reservations", *words, "--db", store])


def test_what_is_held_is_listed_renewed_confirmed_and_not_cancelled_any_more(store: str) -> None:
    first = run(store, "create", "web", "--for", "60", "-o", "json")
    assert first.exit_code == 0, first.output
    made = json.loads(first.stdout)
    id_ = made["reservation"]
    assert (made["node"], made["state"], made["legs"][0]["volume"]) == ("n0", "reserved", "spare")
    assert id_ in run(store, "list").stdout
    later = json.loads(run(store, "renew", id_, "--for", "900", "-o", "json").stdout)
    assert later["expiresAt"] > made["expiresAt"]
    assert json.loads(run(store, "confirm", id_, "-o", "json").stdout)["state"] == "prebinding"
    late = run(store, "cancel", id_)
    assert late.exit_code == 7
    assert "is confirmed already (prebinding)" in late.output
    assert "nothing is reserved" in run(store, "list").output


def test_what_is_cancelled_cannot_be_confirmed(store: str) -> None:
    id_ = json.loads(run(store, "create", "web", "-o", "json").stdout)["reservation"]
    assert "scaled in" in run(store, "cancel", id_, "--reason", "scaled in").output
    late = run(store, "confirm", id_)
    assert late.exit_code == 7
    assert "scaled in" in late.output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create", "none"), 3, 'pod "default/none" not found'),
        (("create", "web", "--node", "n9"), 3, 'node "n9" not found'),
        (("create", "db"), 7, "is on node"),
        (("create", "big"), 4, "volsched audit why"),
        (("confirm", "none"), 3, 'reservation "none" not found'),
    ],
)
def test_what_cannot_be_done_has_its_exit_code(store: str, words: tuple[str, ...], code: int, said: str) -> None:
    result = run(store, *words)
    assert (result.exit_code, said in " ".join(result.output.split())) == (code, True), result.output
