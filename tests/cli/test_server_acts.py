"""`--server`: what changes something, follows along, or is refused; and who is let in."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.api.access.secured import LONG, issue_token, secured, write_issued
from tests.api.questions.conftest import furnished
from tests.cli.conftest import Run
from tests.cli.two_ways import TwoWays
from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.command_processes import line, started
from tests.support.fresh_stores import unsynced_store
from tests.support.half_done import half_done
from tests.support.parked_effects import parked_prebind
from tests.support.patience import HANG_SECONDS
from tests.support.serving import served
from volsched.api.access.callers import Role, organizations
from volsched.api.access.tls import make_authority
from volsched.cli.remote import server
from volsched.log.database import Database, open_database

ZONED = volume("zoned", "5Gi", "node-0")
ZONED["metadata"]["labels"] = {"failure-domain.beta.kubernetes.io/zone": "a"}
ZONED["spec"] = {it: value for it, value in ZONED["spec"].items() if it not in ("local", "nodeAffinity")}
ZONED["spec"]["gcePersistentDisk"] = {"pdName": "zoned"}
CLUSTER = [
    ZONED,
    LOCAL,
    node("node-0", **{"topology.kubernetes.io/zone": "a"}),
    volume("disk", "5Gi", "node-0"),
    claim("data", "4Gi"),
    pod("db", "data"),
]


@pytest.fixture
def twins(tmp_path: Path, migrated_file: Path, run: Run, request: pytest.FixtureRequest) -> Iterator[TwoWays]:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    shutil.copyfile(migrated_file, here)
    if fill := getattr(request, "param", None):
        fill(str(here))
    with open_database(f"sqlite:///{here}").engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(here, there)
    with unsynced_store(there) as database, served(database) as api:
        yield TwoWays(str(here), api, run)


def manifests(*objects: object) -> bytes:
    return yaml.safe_dump_all(objects).encode()


def test_objects_are_applied_created_and_deleted_with_the_same_words(twins: TwoWays) -> None:
    everything = manifests(*CLUSTER)
    first = twins.same("apply", "-f", "-", "--reason", "first räck", stdin=everything)
    assert {it.rpartition(" ")[2] for it in first.out.splitlines()} == {"created"}
    again = twins.same("apply", "-f", "-", stdin=everything)
    assert {it.rpartition(" ")[2] for it in again.out.splitlines()} == {"unchanged"}
    labelled = {**CLUSTER[2], "metadata": {"name": "node-0", "labels": {"rack": "r1"}}}
    assert twins.same("apply", "-f", "-", stdin=manifests(labelled, LOCAL)).out.split()[1] == "configured"
    assert twins.same("create", "-f", "-", stdin=everything).code == 7
    assert twins.same("create", "-f", "-", stdin=manifests(LOCAL, node("node-1"))).code == 7
    assert twins.same("create", "-f", "-", stdin=manifests(node("node-2"))).code == 0
    changed = {**CLUSTER[4], "spec": {**CLUSTER[4]["spec"], "storageClassName": "other"}}
    assert twins.same("apply", "-f", "-", stdin=manifests(changed)).code == 1
    known = volume("known", "1Gi", "node-0")
    known["spec"]["claimRef"] = {"name": "x", "namespace": "y", "uid": "z"}
    assert twins.same("apply", "-f", "-", stdin=manifests(known, node("node-3"))).code == 1
    assert twins.same("apply", "-f", "-", stdin=b"kind: Nothing").code == 1
    assert twins.same("apply", "-f", "-", stdin=b"{").code == 2
    twins.same("get", "pv", "-o", "wide")
    zoned = [run("get", "pv", "zoned", "-o", "json") for run in (twins.here, twins.there)]
    assert json.loads(zoned[0].out)["spec"] == json.loads(zoned[1].out)["spec"]
    assert twins.same("delete", "pod", "db", "--reason", "done").out == "pod/default/db deleted\n"
    assert "is marked" in twins.same("delete", "pvc", "data").out
    assert twins.same("delete", "node", "node-0", "node-9").code == 3
    assert twins.same("delete", "binding", "x").code == 2
    assert "did you mean disk" in twins.there("delete", "pv", "disc").err
    assert twins.same("delete", "-f", "-", stdin=manifests(LOCAL, node("node-2"))).code == 0
    unreadable = twins.api.http.delete("/api/v1/nodes/node-1", headers={"x-volsched-reason": "%ff"})
    assert (unreadable.status_code, "X-Volsched-Reason" in unreadable.json()["message"]) == (400, True)
    told = json.loads(twins.there("history", "pod", "db", "-o", "json").out)["items"]
    assert [(it["actor"], it["reason"]) for it in told] == [("api/test", "first räck"), ("api/test", "done")]


@pytest.mark.parametrize("twins", [lambda db: furnish(db)], indirect=True)
def test_reservations_are_made_confirmed_and_given_up(twins: TwoWays) -> None:
    made = json.loads(twins.there("reservations", "create", "web", "--for", "300", "-o", "json").out)
    assert (made["pod"], made["node"], made["state"]) == ("default/web", "n1", "reserved")
    (listed,) = json.loads(twins.there("reservations", "list", "-o", "json").out)["items"]
    assert listed == made
    twins.run("reservations", "create", "web", "--db", twins.db)
    assert twins.same("reservations", "create", "web").code == 7
    assert twins.same("reservations", "create", "big").code == 4
    assert twins.same("reservations", "create", "nobody").code == 3
    name = made["reservation"]
    renewed = json.loads(twins.there("reservations", "renew", name, "--for", "900", "-o", "json").out)
    assert renewed["expiresAt"] > made["expiresAt"]
    ended = f"reservation {name} has ended: cancelled by api/test: scaled in\n"
    for _ in range(2):
        assert twins.there("reservations", "cancel", name, "--reason", "scaled in").out == ended
    assert twins.there("reservations", "confirm", name).code == 7
    other = twins.there("reservations", "create", "web", "--key", "k", "-o", "json")
    assert twins.there("reservations", "create", "web", "--key", "k", "-o", "json").out == other.out
    name = json.loads(other.out)["reservation"]
    assert json.loads(twins.there("reservations", "confirm", name, "-o", "json").out)["state"] == "prebinding"
    assert twins.there("reservations", "cancel", name).code == 7
    assert twins.there("reservations", "renew", name).code == 7


def furnish(db: str) -> None:
    with unsynced_store(db) as database:
        furnished(database)


def give_up(db: str) -> None:
    half_done(db)
    with unsynced_store(db) as database:
        parked_prebind(database)


@pytest.mark.parametrize("twins", [give_up], indirect=True)
def test_work_that_was_given_up_is_listed_retried_and_cancelled(twins: TwoWays) -> None:
    twins.same("effects", "list")
    (found,) = json.loads(twins.same("effects", "list", "--state", "parked", "-o", "json").out)["items"]
    twins.same("effects", "retry", found["key"], "--reason", "fire is out")
    assert twins.same("effects", "cancel", found["key"]).code == 3
    told = json.loads(twins.there("history", "binding", found["binding"], "-o", "json").out)["items"]
    assert [(it["actor"], it["reason"]) for it in told if it["reason"]] == [("api/test", "fire is out")]


@pytest.mark.parametrize("twins", [give_up], indirect=True)
def test_a_log_that_was_rewritten_is_found_over_http(twins: TwoWays) -> None:
    twins.same("effects", "list", "--queue", "prebind", "--limit", "1")
    for path in (twins.db, twins.db.replace("here.db", "there.db")):
        with unsynced_store(path) as database, database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE events SET actor = 'me' WHERE position = 7")
    assert twins.same("verify").code == 5
    assert twins.same("verify", "-o", "json").code == 5
    assert "position 7" in twins.there("verify").err


def test_a_watch_follows_over_http_and_ends_well_with_ctrl_c(twins: TwoWays) -> None:
    twins.api.create(node("a"), node("b", rack="r1"))
    watch = ("get", "nodes", "-w", "-l", "rack")
    with started("--server", twins.api.url, *watch) as process:
        assert line(process.stdout).startswith("NAME ")
        assert line(process.stdout).startswith("b ")
        twins.api.create(node("c"), node("d", rack="r2"))
        assert line(process.stdout).startswith("d ")
        twins.there("delete", "node", "d")
        assert line(process.stdout).endswith("(deleted)")
        process.send_signal(signal.SIGINT)
        assert (process.wait(timeout=HANG_SECONDS), process.communicate()[1]) == (0, "")
    assert "cannot be watched over HTTP" in twins.there("get", "bindings", "-w").err


STORE_ITSELF = ("migrate", "schedule", "recover", "rebuild", "replay", "up --port 0", "serve api", "token list",
                "release disk --reason x", "bind claim data --node a", "backup x.vsb",
                "archive --until 1 --out x", "import -f {file}")  # fmt: skip


@pytest.mark.parametrize("words", STORE_ITSELF)
def test_what_needs_the_store_says_where_to_run_it(run: Run, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_bytes(manifests(node("a")))
    ran = run("--server", "http://127.0.0.1:1", *words.format(file=tmp_path / "m.yaml").split())
    assert (ran.code, ran.out) == (2, "")
    assert f"volsched {words.split()[0]} works on a store itself" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--server", "http://127.0.0.1:1", "get", "pv"), 1, "http://127.0.0.1:1 cannot be reached"),
        (("--server", "http://10.1.2.3:8700", "get", "pv"), 2, "write https://10.1.2.3:8700"),
        (("--server", "127.0.0.1:8700", "get", "pv"), 2, "is not the address of a server"),
        (("--server", "http://me:secret@h:1", "get", "pv"), 2, '"h:1" is not the address'),
        (("--server", "http://127.0.0.1:x", "get", "pv"), 2, "is not the address of a server"),
        (("--server", "http://127.0.0.1:1", "get", "pv", "--db", "x"), 2, "two places; give one of them"),
        (("--server", "https://a", "--client-cert", "c", "get", "pv"), 2, "go together"),
        (("--server", "https://a", "--ca-file", "none", "get", "pv"), 2, "none holds no certificate"),
        (("--server", "https://a", "--token-file", "none", "get", "pv"), 2, "none cannot be read"),
        (("--kubeconfig", "none", "get", "pv"), 2, "none cannot be read"),
        (("--kubeconfig", "README.md", "get", "pv"), 2, "kubeconfig"),
        (("--server", "http://127.0.0.1:1", "verify", "--write-anchor", "a"), 2, "without --server"),
        (("--server", "http://127.0.0.1:1", "get", "pv", "-l", "="), 2, "selector"),
    ],
)
def test_a_server_that_is_named_wrongly_is_reported(
    run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = run(*words)
    assert (ran.code, ran.out, said in ran.err) == (code, "", True), ran.err
    assert "secret" not in ran.err


def test_a_server_that_does_not_answer_ends_with_6(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ran = run("--server", url, "delete", "pod", "db")
    assert (ran.code, f"{url} has not answered" in ran.err) == (6, True)


def test_a_store_that_is_named_counts_before_the_environment(
    twins: TwoWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOLSCHED_SERVER", "http://127.0.0.1:1")
    assert twins.run("get", "pv").code == 1
    assert twins.run("get", "pv", "--db", twins.db).code == 0
    monkeypatch.setenv("VOLSCHED_SERVER", twins.api.url)
    assert twins.run("get", "pv").code == 0


def test_with_tls_a_token_or_a_certificate_says_who_it_is(run: Run, tmp_path: Path, sqlite: Database) -> None:
    authority = make_authority(tmp_path / "certs")
    with secured(sqlite, authority, tmp_path) as api:
        for name, role, within in (
            ("ada", Role.OPERATOR, None),
            ("eve", Role.VIEWER, None),
            ("kim", Role.VIEWER, ["shop"]),
        ):
            (tmp_path / name).write_text(issue_token(sqlite, name, role, namespaces=within))
            (tmp_path / f"{name}.conf").write_text(
                yaml.safe_dump(api.config_with_token((tmp_path / name).read_text()))
            )
        believing = ("--server", api.url, "--ca-file", str(tmp_path / "ca.pem"))
        ada = (*believing, "--token-file", str(tmp_path / "ada"))
        assert run(*ada, "apply", "-f", "-", stdin=manifests(node("a"))).out == "node/a created\n"
        issued = authority.for_client("bob", organizations((Role.AUDITOR,), None), lasts=LONG)
        certificate, key = write_issued(tmp_path, issued)
        bob = (*believing, "--client-cert", str(certificate), "--client-key", str(key))
        (told,) = json.loads(run(*bob, "history", "node", "a", "-o", "json").out)["items"]
        assert told["actor"] == "token/ada"
        eve, kim = (("--kubeconfig", str(tmp_path / f"{it}.conf")) for it in ("eve", "kim"))
        assert run(*eve, "get", "nodes", "-o", "name").out == "node/a\n"
        refused = run(*eve, "delete", "node", "a")
        assert (refused.code, "token create NAME --role ROLE" in refused.err) == (1, True)
        assert run(*ada, "create", "-f", "-", stdin=manifests(pod("db"))).code == 0
        assert "did you mean default/db" in run(*eve, "get", "pod", "dbx", "-n", "shop").err
        unknown = run(*kim, "get", "pod", "dbx", "-n", "shop")
        assert (unknown.code, "default/db" in unknown.err) == (3, False), "names of other namespaces are not told"
        stranger = run(*believing, "get", "nodes")
        assert (stranger.code, "--token-file" in stranger.err) == (1, True)
        (tmp_path / "old").write_text("vs1_nobody_0000")
        forged = run(*believing, "--token-file", str(tmp_path / "old"), "get", "nodes")
        assert (forged.code, "vs1_nobody" in forged.err) == (1, False)
        doubtful = run("--server", api.url, "--token-file", str(tmp_path / "ada"), "get", "nodes")
        assert (doubtful.code, "--ca-file" in doubtful.err) == (1, True)
