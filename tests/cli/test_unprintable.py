"""What others wrote into objects cannot act on the terminal or the spreadsheet of whoever looks at it."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

TITLE = "\x1b]0;owned\x07\x1b[2J"
TURNED = "\u202egpj.exe"
NOTE = f"{TITLE}{TURNED}"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "annotations": {"note": NOTE}},
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "n1.1", "namespace": "default"},
    "involvedObject": {"kind": "Node", "name": "n1"},
    "type": "Warning",
    "reason": "Odd",
    "message": f"=cmd()|{TITLE}",
    "source": {"component": "kubelet"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "count": 1,
}


@pytest.fixture
def store(run: Run, db: str, tmp_path: Path) -> str:
    manifest = tmp_path / "n.json"
    manifest.write_text(json.dumps(NODE) + "\n" + json.dumps(EVENT))
    ran = run("apply", "-f", str(manifest), "--db", db, "--reason", f"because {TITLE}")
    assert ran.code == 0, ran.err
    return db


@pytest.mark.parametrize(
    "words",
    [
        ("get", "events"),
        ("get", "events", "-o", "wide"),
        ("get", "node", "n1", "-o", "yaml"),
        ("get", "node", "n1", "-o", "json"),
        ("describe", "node", "n1"),
        ("history", "node", "n1"),
        ("history", "node", "n1", "-o", "csv"),
        ("get", "events", "-o", "csv"),
    ],
)
def test_no_escape_sequence_reaches_the_terminal(run: Run, store: str, words: tuple[str, ...]) -> None:
    ran = run(*words, "--db", store)
    assert ran.code == 0
    assert not {"\x1b", "\x07", "\u202e"} & {*ran.out, *ran.err}


def test_nor_does_one_that_was_given_as_a_name(run: Run, store: str) -> None:
    ran = run("get", "node", TITLE, "--db", store)
    assert ran.code != 0
    assert not {"\x1b", "\x07"} & {*ran.out, *ran.err}


def test_it_is_shown_instead(run: Run, store: str) -> None:
    assert "\\u001b]0;owned\\u0007\\u001b[2J" in run("describe", "node", "n1", "--db", store).out
    shown = json.loads(run("get", "node", "n1", "-o", "json", "--db", store).out)
    assert shown["metadata"]["annotations"]["note"] == NOTE


def test_a_cell_that_begins_like_a_formula_is_text(run: Run, store: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run("get", "events", "-o", "csv", "--db", store).out)))
    assert rows[0]["MESSAGE"].startswith("'=cmd()")


def test_a_word_between_colons_stays_what_it_is(run: Run, tmp_path: Path) -> None:
    """rich has pictures for some: a cross for `:x:`, which is half a line of /etc/passwd."""
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0:root:/root:/bin/bash\n")
    ran = run("validate", "-f", str(passwd))
    assert (ran.code, "root:x:0:0" in ran.err) == (1, True), ran.err
