"""The Dockerfile, as far as it can be read; `make image` carries its steps out."""

import tomllib

from tests.stack.composed import ROOT, compose
from tests.stack.image_steps import instructions

LINES = instructions(ROOT / "Dockerfile")


def arguments(word: str) -> list[str]:
    return [argument for it, argument in LINES if it == word]


def test_both_stages_begin_with_the_same_pinned_image() -> None:
    first, last = arguments("FROM")
    assert first == f"{last} AS build"
    assert last.startswith("python:3.11.")


def test_the_last_stage_takes_only_what_was_installed_and_runs_as_the_user_of_compose() -> None:
    last = LINES[[it for it, _ in LINES].index("FROM", 1) :]
    assert [argument for it, argument in last if it == "COPY"] == ["--from=build /opt/volsched /opt/volsched"]
    assert [argument for it, argument in last if it == "USER"] == [compose()["x-volsched"]["user"]]
    words = [it for it, _ in last]
    assert words.index("USER") < words.index("HEALTHCHECK")
    assert not any("apt-get" in argument for _, argument in LINES)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    admitted = [it[1:] for it in (ROOT / ".dockerignore").read_text().splitlines() if it.startswith("!")]
    copied = [name for it in arguments("COPY") if not it.startswith("--from") for name in it.split()[:-1]]
    assert sorted(copied) == sorted(admitted)
    assert all((ROOT / name).exists() for name in copied)


def test_its_version_and_its_extras_are_those_of_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert compose()["x-volsched"]["image"] == f"volsched:{project['version']}"
    (install,) = (it for it in arguments("RUN") if "requirements.lock" in it)
    assert install.endswith('[stack,server]"')
    assert {"stack", "server"} <= set(project["optional-dependencies"])


def test_the_lock_pins_what_the_image_installs() -> None:
    locked = {it.partition("==")[0] for it in (ROOT / "requirements.lock").read_text().splitlines()}
    assert {"celery", "redis", "psycopg", "uvicorn", "starlette", "cryptography", "psutil"} <= locked
