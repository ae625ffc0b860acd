"""The list of verbs: complete, each with examples, completed by shells, and cheap to print."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from volsched.cli.app import Verbs, app

ENTRIES = [it for entries in Verbs.table.values() for it in entries]
HEAVY = ("sqlalchemy", "alembic", "yaml", "volsched.kube", "volsched.core", "volsched.log", "volsched.runtime")


def commands(command: Any, *words: str) -> list[tuple[tuple[str, ...], Any]]:
    """A command and all below it, with the words that call them."""
    below = [it for name, sub in getattr(command, "commands", {}).items() for it in commands(sub, *words, name)]
    return [(words, command), *below]


def loaded(name: str) -> Any:
    group = typer.main.get_command(app)
    with typer.Context(group, info_name="volsched") as context:
        return group.resolve_command(context, [name])[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda it: it.name)
def test_every_command_says_what_it_does_and_shows_how(entry: Any) -> None:
    for words, command in commands(loaded(entry.name), entry.name):
        ran = CliRunner().invoke(app, [*words, "--help"], env={"NO_COLOR": "1"})
        assert ran.exit_code == 0
        assert len(command.help) > 20
        if not hasattr(command, "commands"):
            assert "Examples" in ran.stdout, words
            assert f"volsched {' '.join(words)}" in " ".join(ran.stdout.split()), words


def test_the_list_names_every_verb_once() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"NO_COLOR": "1", "TERMINAL_WIDTH": "120"}).stdout
    names = [it.name for it in ENTRIES]
    assert len(set(names)) == len(names)
    for it in ENTRIES:
        assert f"│ {it.name} " in said
        assert it.help in said


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("volsched sim", "simulate"),
        ("volsched audit roll", "rollbacks"),
        ("volsched get persistentvolumec", "persistentvolumeclaims"),
    ],
)
def test_a_shell_completes_verbs_questions_and_kinds(words: str, found: str) -> None:
    asked = {"_VOLSCHED_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = CliRunner().invoke(app, [], env=asked, prog_name="volsched")
    assert ran.stdout.split() == [found]


@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_the_list_of_verbs_loads_none_of_them(words: list[str]) -> None:
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "volsched", *words], capture_output=True, text=True, check=False
    ).stderr
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines()}
    assert "volsched.cli.app" in imported
    assert not imported & {*HEAVY}


NEVER_FOR_GET = frozenset(
    {
        "alembic",
        "celery",
        "fastapi",
        "rich.progress",
        "starlette",
        "yaml",
        "volsched.binding.executor",
        "volsched.log.retention.export",
        "volsched.objects.submission",
        "volsched.questions.audit.declarations",
        "volsched.scheduling.cluster_view",
        "volsched.scheduling.index",
        "volsched.scheduling.rules.cycle",
    }
)


READ_BY_THE_DRIVER = (("get", "pv"), ("get", "pods", "-A", "-o", "json"), ("get", "pv,pvc", "-A", "-o", "wide"))
DATABASE = frozenset({"sqlalchemy", "pydantic_settings", "volsched.log.tables", "volsched.log.database"})


@pytest.mark.parametrize("words", READ_BY_THE_DRIVER, ids=" ".join)
def test_looking_at_objects_loads_neither_sqlalchemy_nor_rules_nor_migrations(
    migrated_file: Path, words: tuple[str, ...]
) -> None:
    loaded = modules_of(*words, "--db", str(migrated_file))
    assert "volsched.log.sqlite_file" in loaded
    assert not (NEVER_FOR_GET | DATABASE) & loaded


def test_a_table_is_printed_without_rich(told_store: tuple[str, int]) -> None:
    """It takes longer to load than most tables to print; messages are styled, and load it."""
    loaded = modules_of("get", "nodes", "--db", told_store[0])
    assert "volsched.questions.get.columns" in loaded
    assert "rich.console" not in loaded


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (("get", "pv", "--as-of", "0"), {}),
        (("get", "pv", "no-such"), {}),
        (("-v", "get", "pv"), {}),
        (("get", "pv"), {"VOLSCHED_LOG_LEVEL": "info"}),
    ],
    ids=["the past", "a name that is not there", "a log", "settings"],
)
def test_what_takes_the_whole_store_is_asked_of_it(
    migrated_file: Path, words: tuple[str, ...], setting: dict[str, str]
) -> None:
    assert "sqlalchemy" in modules_of(*words, "--db", str(migrated_file), **setting)


def test_asking_a_server_loads_no_database() -> None:
    loaded = modules_of("--server", "http://127.0.0.1:1", "get", "pv")
    assert "http.client" in loaded
    assert not (NEVER_FOR_GET | DATABASE) & loaded


def modules_of(*words: str, **setting: str) -> set[str]:
    """What a command has loaded when it has ended."""
    code = (
        "import atexit, sys; from volsched.cli import main; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    environment = {name: it for name, it in os.environ.items() if not name.startswith("VOLSCHED_")} | setting
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environment
    )
    return set(ran.stderr.splitlines()[-1].split())
