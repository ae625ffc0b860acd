"""Options of every verb stand before it or behind it, help is where people look for it, and versions are told."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.cli.conftest import Run
from tests.support.fresh_stores import unsynced
from tests.support.serving import Served, served
from volsched.cli.app import Verbs, app, verb_first
from volsched.log.database import open_database

CLUSTER = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    ],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[tuple[Served, Path]]:
    directory = tmp_path_factory.mktemp("cluster")
    path = shutil.copyfile(migrated_file, directory / "store.db")
    words = ["apply", "-f", "-", "--db", str(path)]
    assert CliRunner().invoke(app, words, input=json.dumps(CLUSTER)).exit_code == 0
    database = open_database(f"sqlite:///{path}")
    unsynced(database)
    with served(database) as running:
        (directory / "kubeconfig").write_text(
            f"""
clusters: [{{name: c, cluster: {{server: "{running.url}"}}}}, {{name: d, cluster: {{server: "http://127.0.0.1:1"}}}}]
contexts: [{{name: x, context: {{cluster: c}}}}, {{name: y, context: {{cluster: d}}}}]
current-context: y
"""
        )
        yield running, directory
    database.close()


@pytest.mark.parametrize(
    "words",
    [
        "get pods -n shop -o name {place}",
        "{place} get pods -n shop -o name",
        "{place} -n shop -o name get pods",
        "-n shop get -o name {place} pods",
        "-nshop {place} -oname get pods",
        "--namespace=shop get pods --output=name {place} -v --log-level error",
        "-v --log-level error -n shop {place} get pods --output name",
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "--db {directory}/store.db",
        "--server {url}",
        "--kubeconfig {directory}/kubeconfig --context x",
        "--live --kubeconfig {directory}/kubeconfig --context x",
    ],
)
def test_options_stand_before_the_verb_or_behind_it(
    run: Run, cluster: tuple[Served, Path], words: str, place: str
) -> None:
    named = place.format(directory=cluster[1], url=cluster[0].url)
    ran = run(*words.format(place=named).split())
    assert (ran.code, ran.out) == (0, "pod/db\n"), ran.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--db a explain -n b pod c", "explain pod --db a -n b c"),
        ("--db a get pv --db b", "get pv --db a --db b"),
        ("--db a get pv -- b", "get pv --db a -- b"),
        ("--db a audit", "audit"),
        ("--db a audit --help", "audit --help"),
        ("--wrong get pv", "--wrong get pv"),
        ("--db", "--db"),
        ("-vA get pods", "get pods -vA"),
        ("apply -f - --db a", "apply -f - --db a"),
        ("--version", "--version"),
    ],
)
def test_what_stands_before_the_verb_is_put_behind_it(given: str, meant: str) -> None:
    words = verb_first(given.split())
    expected = meant.split()
    if "explain" in words:
        assert sorted(words) == sorted(expected)
        assert words[:2] == ["explain", "pod"]
    else:
        assert words == expected


def test_a_verb_keeps_its_own_option_of_that_name(run: Run, tmp_path: Path) -> None:
    ran = run("--kubeconfig", str(tmp_path / "none"), "observe", "--db", str(tmp_path / "store.db"))
    assert ran.code == 2
    assert "cannot be read" in ran.err


def test_a_context_that_is_not_there_is_reported_with_those_that_are(
    run: Run, cluster: tuple[Served, Path]
) -> None:
    file = str(cluster[1] / "kubeconfig")
    for words in (["get", "pods", "--kubeconfig", file], ["get", "pods", "--live", "--kubeconfig", file]):
        ran = run(*words, "--context", "nope")
        assert (ran.code, 'no context "nope"; choose one with --context: x' in ran.err) == (2, True)


def test_without_a_kubeconfig_a_context_is_one_of_kubectls(
    run: Run, cluster: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster[1] / "kubeconfig"))
    assert run("get", "nodes", "-o", "name", "--context", "x").out == "node/node-1\n"


def test_help_is_shown_by_h_and_by_the_verb_help(run: Run) -> None:
    long = run("audit", "rollbacks", "--help").out
    assert long == run("audit", "rollbacks", "-h").out == run("help", "audit", "rollbacks").out
    assert run("help").out == run("-h").out == run("--help").out
    assert run("help", "gett").code == 2


def test_versions_are_of_client_store_and_server(run: Run, cluster: tuple[Served, Path], tmp_path: Path) -> None:
    told = json.loads(run("version", "-o", "json", "--db", str(cluster[1] / "store.db")).out)
    assert told["client"]["version"] in run("--version").out
    assert told["store"]["revision"] == told["store"]["newest"]
    told = json.loads(run("version", "-o", "json", "--server", cluster[0].url).out)
    assert told["server"]["version"] == told["client"]["version"]
    ran = run("version", "--db", str(tmp_path / "none.db"))
    assert (ran.code, "store: nothing here yet" in ran.out) == (0, True)
    ran = run("version", "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.out.startswith("client: volsched "), "cannot be reached" in ran.err) == (1, True, True)


PYTHON = re.compile(r"<(bool|str|int|float|list|path|file|dir|class|datetime)\b|\[default: None\]|\bNoneType\b")


@pytest.mark.parametrize("verb", [it.name for entries in Verbs.table.values() for it in entries])
def test_no_help_text_speaks_of_types_of_python(run: Run, verb: str) -> None:
    group: Any = typer.main.get_command(app)
    with typer.Context(group, info_name="volsched") as context:
        below = getattr(group.resolve_command(context, [verb])[1], "commands", {})
    for words in ([verb], *([verb, it] for it in below)):
        ran = run(*words, "-h")
        assert ran.code == 0
        assert not PYTHON.search(ran.out), (words, PYTHON.search(ran.out))
