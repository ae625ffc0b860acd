"""Reading what `-f` names: a file, every manifest under a directory, or standard input."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from volsched.cli.console import Exit, fail
from volsched.kube.manifest_reader import Loaded, load_manifests
from volsched.kube.problems import Defect, ManifestError, Problem

SUFFIXES = (".yaml", ".yml", ".json")

Files = Annotated[
    list[str],
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|-",
        help="Manifests in YAML or JSON, as kubectl prints them; may be repeated; '-' is standard input.",
    ),
]


def load_files(names: list[str]) -> list[Loaded]:
    """All objects of all inputs, or the end of the command with every defect of every input."""
    loaded: list[Loaded] = []
    errors: list[ManifestError] = []
    for source, data in [item for name in names for item in _read(name)]:
        try:
            loaded += load_manifests(data, source=source)
        except ManifestError as error:
            errors.append(error)
    errors += _repeated(loaded)
    if errors:
        unreadable = any(error.unreadable for error in errors)
        messages = [str(problem) for error in errors for problem in error.problems]
        fail(Exit.USAGE if unreadable else Exit.FAILURE, *messages)
    if not loaded:
        fail(Exit.USAGE, f"no objects in {', '.join(names)}; give at least one manifest with apiVersion and kind")
    return loaded


def _repeated(loaded: list[Loaded]) -> list[ManifestError]:
    """Objects that two inputs hold; within one input the loader has said so already."""
    first: dict[tuple[str, str], Loaded] = {}
    problems = []
    for entry in loaded:
        earlier = first.setdefault((entry.kind.name, entry.key), entry)
        if earlier is not entry:
            defect = Defect(("metadata", "name"), f"stands in {earlier.place} as well; remove one of the two")
            problems.append(Problem(entry.place, f'{entry.kind.name} "{entry.key}"', defect))
    return [ManifestError(problems)] if problems else []


def _read(name: str) -> list[tuple[str, bytes]]:
    if name == "-":
        return [("stdin", sys.stdin.buffer.read())]
    path = Path(name)
    files = (
        sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if path.is_dir()
        else [path]
    )
    if not files:
        fail(Exit.USAGE, f"{name} holds no manifest; files must end in {', '.join(SUFFIXES)}")
    return [(str(file), read_bytes(file)) for file in files]


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}; check the path and its permissions")
