"""Documents do not rot: sessions run and print what is shown, links lead somewhere, no command is missing."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.support import audit_story
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.documents import Session, agrees, blocks, files
from tests.support.fresh_stores import unsynced
from volsched.cli.app import app
from volsched.log.database import Database, open_database
from volsched.log.migrations import migrate
from volsched.log.transaction import execute
from volsched.pv_controller.sync import releasing

ROOT = Path(__file__).parents[2]
PLAYED_ON_A_BASE_INSTALL = ROOT / "docs" / "quickstart.md"
"""By test_quickstart.py."""
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def half_bound(database: Database) -> None:
    """A pod whose volumes are written and not bound yet: whoever did it is gone."""
    stepped = Stepped(database, (LOCAL, node("node-a1"), volume("disk-0", "5Gi", "node-a1")))
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db-0", "data"))
    stepped.plan_and_write()


def stolen_volume(database: Database) -> None:
    """The audit's story; in the end Ada gives the volume back, at the story's time and not at ours."""
    stepped = audit_story.tell(database)
    release = releasing(
        database, "n0-small", reason="wiped, ticket 4711", by="ada", actor="cli/release/ada", now=stepped.now
    )
    assert release is not None
    execute(database, [release], now=stepped.now)


STORES = {"stolen volume": stolen_volume, "killed worker": half_bound}
"""What a document's `new store` may name."""


def fill(name: str, path: Path) -> None:
    database = open_database(f"sqlite:///{path}")
    unsynced(database)
    migrate(database)
    STORES[name](database)
    database.close()


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize(
    "document",
    [it for it in DOCUMENTS if it != PLAYED_ON_A_BASE_INSTALL and any(not block.not_run for block in blocks(it))],
    ids=named,
)
def test_sessions_print_what_the_document_shows(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for name, text in files(document).items():
        (tmp_path / name).write_text(text)
    session = Session(tmp_path, fill)
    for block in blocks(document):
        if block.not_run is None:
            session.play(block)


@pytest.mark.parametrize(
    ("shown", "got", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a", "c"], False),
        (["a", "…"], ["a", "b", "c"], True),
        (["a", "…", "d"], ["a", "d"], True),
        (["a", "…", "d"], ["a", "b"], False),
        (["a"], ["a", "b"], False),
        (["pod … waits"], ["pod shop/db waits"], True),
        (["pod … waits"], ["pod shop/db runs"], False),
        (["at 2026-11-17T04:23:31.421Z   13s"], ["at 2027-01-01T00:00:00Z 2m5s"], True),
        (["binding d7104b092da0 committed"], ["binding 0123456789ab rolled-back"], False),
        (["47 events, position 9"], ["5 events, position 12"], True),
        (["1 of 1 pods"], ["0 of 1 pods"], False),
        (["from 500Gi to 600Gi"], ["from 500Gi to 700Gi"], False),
    ],
)
def test_output_agrees_as_loosely_as_the_document_says(shown: list[str], got: list[str], same: bool) -> None:
    assert agrees(shown, got) is same


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    assert [it for it in targets if not (document.parent / it).exists()] == []


OF_TODAY = [it for it in DOCUMENTS if not {"decisions", "measurements"} & set(it.parts)]
"""Decisions and measurements are of their time, and name the files of their time."""
PLACEHOLDER = re.compile(r"[A-Z]{4}")
"""`NNNN_what_it_is_for.py`, `test_NAME.py`."""
BEHIND_ITS_FILE = re.compile(r"`([\w/]+\.py)`\s\(((?:`\w+`(?:,\s)?)+)")
BEFORE_ITS_FILE = re.compile(r"`(\w+)` (?:of|in)\s`([\w/]+\.py)`")


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    rooms = ("volsched", "workers", "tools", "tests", "alembic", "deploy", "docs", "locks")
    found = [*ROOT.glob("*.py"), *(it for room in rooms for it in (ROOT / room).rglob("*.*"))]
    return {f"/{it.relative_to(ROOT)}": it for it in found}


@pytest.mark.parametrize("document", OF_TODAY, ids=named)
def test_the_files_that_a_document_names_are_there(document: Path, sources: dict[str, Path]) -> None:
    """A Python file may be named without its folder."""
    told = re.findall(
        r"`([\w./-]+\.py|[\w.-]+/[\w./-]+\.(?:ya?ml|json|toml|tsx?|css|sh|mjs))`", document.read_text()
    )
    told = [it for it in told if not PLACEHOLDER.search(it)]
    assert [it for it in told if not any(path.endswith(f"/{it}") for path in sources)] == []


@pytest.mark.parametrize("document", OF_TODAY, ids=named)
def test_what_a_document_names_in_a_file_is_in_it(document: Path, sources: dict[str, Path]) -> None:
    text = document.read_text()
    told = [(name, file) for file, names in BEHIND_ITS_FILE.findall(text) for name in re.findall(r"\w+", names)]
    told += BEFORE_ITS_FILE.findall(text)
    lost = [
        (name, file)
        for name, file in told
        if not any(
            re.search(rf"\b{name}\b", path.read_text())
            for known, path in sources.items()
            if known.endswith(f"/{file}")
        )
    ]
    assert lost == []


def test_the_readme_lists_every_command() -> None:
    rows = re.findall(r"^\| (.*?) \| ", (ROOT / "README.md").read_text().replace(r"\|", " "), re.M)
    told = set(re.findall(r"[a-z-]+", " ".join(rows)))
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) - told == set()
