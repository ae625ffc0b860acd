"""What others wrote into objects cannot act on the terminal or the spreadsheet of whoever looks at it."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Run

TITLE = "\x1b]0;owned\x07\x1b[2J"
TURNED = "\u202egpj.exe"
UNSEEN = "a\u200b\u00ad\u2060b\U000e0041"
FORGED = "well\nBindings:     pod default/p on n2\r\n\u2028Normal  Bound"
NOTE = f"{TITLE}{TURNED}"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "annotations": {"forged": FORGED, "note": NOTE, "turned": TURNED, "unseen": UNSEEN},
    },
}
EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "n1.1", "namespace": "default"},
    "involvedObject": {"kind": "Node", "name": "n1"},
    "type": "Warning",
    "reason": "Odd",
    "message": f"=cmd()|{TITLE}{UNSEEN}{FORGED}",
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
    assert not {"\x1b", "\x07", *TURNED[0], *UNSEEN[1:4], UNSEEN[-1]} & {*ran.out, *ran.err}


@pytest.mark.parametrize(
    "words",
    [("describe", "node", "n1"), ("get", "events", "-o", "wide"), ("history", "node", "n1")],
)
def test_no_text_begins_a_line_of_its_own(run: Run, store: str, words: tuple[str, ...]) -> None:
    ran = run(*words, "--db", store)
    assert ran.code == 0
    assert "well" in ran.out or words[0] == "history"
    assert not [line for line in ran.out.splitlines() if line.startswith(("Bindings:     pod", "Normal  Bound"))]


@pytest.mark.parametrize(("form", "read"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_what_is_shown_instead_is_read_as_the_same_again(
    run: Run, store: str, form: str, read: Callable[[str], Any]
) -> None:
    shown = read(run("get", "node", "n1", "-o", form, "--db", store).out)
    assert shown["metadata"]["annotations"] == NODE["metadata"]["annotations"]


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
