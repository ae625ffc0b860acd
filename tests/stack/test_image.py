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


def test_its_version_is_that_of_the_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert compose()["x-volsched"]["image"] == f"volsched:{project['version']}"


def test_nothing_is_installed_but_by_its_hash_and_our_wheel_without_fetching_anything() -> None:
    installs = [it.partition("-m pip ")[2] for it in arguments("RUN") if "pip install" in it or "pip wheel" in it]
    locked = "install --quiet --only-binary :all: --require-hashes --requirement locks"
    assert installs == [
        f"{locked}/build.lock",
        f"{locked}/console.lock",
        "wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .",
        f"{locked}/image.lock",
        "install --quiet --no-deps /dist/volsched-*.whl",
    ]
    # The console's packages too are those of a lock with hashes: `ci` takes no others.
    assert [it for it in arguments("RUN") if "tools.npm" in it] == [
        "python -m tools.npm ci --omit=dev --loglevel=error",
        "python -m tools.npm run build --silent",
    ]
