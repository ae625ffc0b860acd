"""What a shell offers while somebody types, and tables on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from typer.testing import CliRunner

from volsched.cli.app import app
from volsched.cli.table_fit import fitted


@pytest.fixture
def db(told_shop: str) -> str:
    return told_shop


def offered(words: str, **environment: str) -> list[str]:
    asked = {"_VOLSCHED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = CliRunner().invoke(app, [], env=asked | environment, prog_name="volsched")
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("volsched get --db {db} pv disk-", ["disk-0", "disk-1"]),
        ("volsched get --db {db} pods ", ["db", "late", "shop/waiting"]),
        ("volsched get --db {db} -n shop pods ", ["waiting"]),
        ("volsched --db {db} -n shop get pods w", ["waiting"]),
        ("volsched get --db {db} pods shop/", ["shop/waiting"]),
        ("volsched get --db {db} pv/disk-1", ["pv/disk-1"]),
        ("volsched describe --db {db} pvc -n sh", ["shop"]),
        ("volsched history --db {db} node n", ["node-1"]),
        ("volsched delete --db {db} pv disk-1", ["disk-1"]),
        ("volsched delete --db {db} persistentvolumec", ["persistentvolumeclaims"]),
        ("volsched explain pod --db {db} la", ["late"]),
        ("volsched audit volume --db {db} disk-0", ["disk-0"]),
    ],
)
def test_a_shell_completes_names_and_namespaces(db: str, words: str, found: list[str]) -> None:
    assert offered(words.format(db=db)) == found


@pytest.mark.parametrize(
    "words",
    ["volsched get --db /nothing/here.db pods d", "volsched get nonsense d", "volsched get --db {text} pv d"],
)
def test_whatever_goes_wrong_it_says_nothing(tmp_path: Path, words: str) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no store " * 100)
    assert offered(words.format(text=text)) == []


def test_text_is_folded_into_its_column_and_no_word_is_broken() -> None:
    rows = [["NAME", "MESSAGE", "AGE"], ["disk-0", "0/3 nodes are available: 3 node(s) had no room", "5s"]]
    lines, fits = fitted(rows, 40, 3)
    assert fits
    assert all(len("   ".join(it)) <= 40 + 6 for it in lines)
    assert " ".join(it[1] for it in lines[1:]).split() == rows[1][1].split()
    assert fitted(rows, 200, 3) == (rows, True)
    assert fitted(rows, 12, 3)[1] is False


def on_terminal(columns: int, words: list[str], **environment: str) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    given = {it: value for it, value in os.environ.items() if it not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "volsched", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**given, "NO_COLOR": "1", "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            sent += part
        process.wait()
    os.close(ours)
    return sent.decode().replace("\r\n", "\n")


def test_a_table_fits_the_terminal_and_a_wide_one_is_paged(db: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged\ncat\n")
    pager.chmod(0o755)
    told = on_terminal(100, ["get", "attempts", "-n", "shop", "--db", db], PAGER=str(pager))
    assert "paged" not in told
    assert all(len(line) <= 100 for line in told.splitlines())
    told = on_terminal(40, ["get", "pv", "-o", "wide", "--db", db], PAGER=str(pager))
    assert told.startswith("paged\n")
    assert "disk-1" in told
