"""Running the command as a user does: words in, exit code and both outputs out."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

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
