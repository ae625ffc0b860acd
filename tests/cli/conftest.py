"""Running the command as a user does: words in, exit code and both outputs out."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.stories import tell
from tests.support.history_story import story
from volsched.cli.app import app

__all__ = ["Ran", "Run", "run", "story"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    def call(*words: str, stdin: bytes | None = None) -> Ran:
        result = CliRunner().invoke(app, list(words), input=stdin, env={"NO_COLOR": "1", "COLUMNS": "200"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def db(store_file: Path) -> str:
    """An empty store, as `--db` names it."""
    return str(store_file)


@pytest.fixture(scope="session")
def told_once(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> tuple[Path, int]:
    path = shutil.copyfile(migrated_file, tmp_path_factory.mktemp("told") / "store.db")
    return path, tell(path)


@pytest.fixture(scope="module")
def told_store(tmp_path_factory: pytest.TempPathFactory, told_once: tuple[Path, int]) -> tuple[str, int]:
    """A store in which something of everything is so, for one module, and a position in its past."""
    path, position = told_once
    return str(shutil.copyfile(path, tmp_path_factory.mktemp("store") / "store.db")), position


@pytest.fixture(scope="module")
def told_shop(told_store: tuple[str, int]) -> str:
    """The same, which knows the namespace of its pods."""
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    path = told_store[0]
    assert CliRunner().invoke(app, ["apply", "-f", "-", "--db", path], input=namespace).exit_code == 0
    return path
