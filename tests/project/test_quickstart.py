"""The first hour of docs/quickstart.md, by somebody with an empty home and the base install of the built wheel."""

from pathlib import Path

from tests.support.base_install import base_install
from tests.support.documents import ShellSession, blocks, files

DOCUMENT = Path(__file__).parents[2] / "docs" / "quickstart.md"


def test_the_first_hour_goes_as_the_quickstart_says(tmp_path: Path) -> None:
    commands = base_install(tmp_path)
    home, directory = tmp_path / "home", tmp_path / "home" / "work"
    directory.mkdir(parents=True)
    for name, text in files(DOCUMENT).items():
        (directory / name).write_text(text)
    environment = {
        "HOME": str(home), "PATH": f"{commands}:/usr/bin:/bin", "LOGNAME": "ada", "LANG": "C.UTF-8",
        "NO_COLOR": "1", "COLUMNS": "200",
    }  # fmt: skip
    session = ShellSession(directory, fill=lambda *_: None, environment=environment)
    for block in blocks(DOCUMENT):
        session.play(block)
