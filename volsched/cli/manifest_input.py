"""Files that a command reads or writes: manifests that `-f` names, line by line, and `volsched validate`."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.markup import escape

from volsched.cli.completion import complete_namespace
from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.kube.manifest_reader import Loaded, Skipped, UnknownFields, load_manifests, newest
from volsched.kube.problems import Defect, ManifestError, Problem, problem_lines
from volsched.log.durable_files import ERRORS, PRIVATE, lines_of_file
from volsched.objects.rules.field_check import field_faults

SUFFIXES = (".yaml", ".yml", ".json")
LARGE = 1 << 20
"""Bytes of manifests whose reading takes so long that people want to see it."""

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|URL|-",
        help="Manifests in YAML or JSON, as kubectl prints them; may be repeated; '-' is standard input.",
    ),
]
Kustomization = Annotated[
    str | None,
    typer.Option("--kustomize", "-k", metavar="DIR", help="What kustomize makes of this directory, or of a URL."),
]
NamespaceOfManifests = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="The namespace of objects that name none, else 'default'; one that names another is refused.",
        autocompletion=complete_namespace,
    ),
]
SkipForeign = Annotated[
    bool, typer.Option("--skip-foreign", help="Pass over kinds that volsched does not know, and say so.")
]


def load_inputs(
    files: list[str] | None,
    kustomize: str | None = None,
    *,
    namespace: str | None = None,
    dump: bool = False,
    tell_fields: bool = True,
) -> list[Loaded]:
    """All objects of all inputs, or the end of the command with every defect of every input.

    `namespace` is that of objects which name none. `dump`: the input is of a cluster, which holds more than
    we know of. What is not ours is passed over and told in a line, and so is what stands there twice.
    `tell_fields`: unknown fields are warned of; without it they are defects, for the caller to find.
    """
    names = [*(files or ())]
    if not names and kustomize is None:
        fail(Exit.USAGE, "say which manifests: -f FILE|DIR|URL|-, or -k DIR")
    inputs = [item for name in names for item in _read(name)]
    if kustomize is not None:
        from volsched.cli.fetched_manifests import kustomized

        inputs.append((f"kustomize {kustomize}", kustomized(kustomize)))
    skipped = Skipped(in_directory=any(Path(name).is_dir() for name in names)) if dump else None
    # The cluster of a dump may be newer than we are: of objects that are well, its fields are warned of below.
    unknown = UnknownFields.OF_REFUSED if dump and tell_fields else UnknownFields.OF_ALL
    loaded = _loaded(inputs, skipped, namespace or "", unknown)
    if skipped is not None and str(skipped):
        stderr.print(escape(f"note: {skipped}"))
    if not loaded:
        where = ", ".join(source for source, _ in inputs[:3]) or "the input"
        fail(Exit.USAGE, f"no objects in {where}; give at least one manifest with apiVersion and kind")
    if dump and tell_fields:
        _tell_unknown_fields(loaded)
    return loaded


def load_files(names: list[str]) -> list[Loaded]:
    return load_inputs(names)


def load_within(
    files: list[str] | None,
    kustomize: str | None,
    namespace: str | None,
    *,
    dump: bool = False,
    tell_fields: bool = True,
) -> list[Loaded]:
    """`load_inputs`, where no object is of another namespace than the one that was asked for, as with kubectl."""
    loaded = load_inputs(files, kustomize, namespace=namespace, dump=dump, tell_fields=tell_fields)
    others = [it for it in loaded if it.kind.namespaced and it.value.meta.namespace != namespace]
    if namespace is not None and others:
        remedy = f'is not of namespace "{namespace}"; leave -n out, or choose that of the object'
        fail(Exit.USAGE, *(f'{it.place}: {it.kind.name} "{it.key}" {remedy}' for it in others))
    return loaded


def _loaded(
    inputs: list[tuple[str, bytes]], skipped: Skipped | None, namespace: str, unknown: UnknownFields
) -> list[Loaded]:
    loaded: list[Loaded] = []
    errors: list[ManifestError] = []
    with _reading(inputs) as progress:
        for number, (source, data) in enumerate(inputs):
            if len(inputs) > 1:
                progress(number, len(inputs))
            try:
                told = progress if len(inputs) == 1 else None
                loaded += load_manifests(
                    data,
                    source=source,
                    namespace=namespace,
                    skipped=skipped,
                    unknown=unknown,
                    progress=told,
                )
            except ManifestError as error:
                if skipped is not None and skipped.in_directory and error.unreadable:
                    skipped.strays.append(source)
                else:
                    errors.append(error)
    if skipped is not None:
        loaded = newest(loaded, skipped)
    errors += _repeated(loaded)
    if errors:
        unreadable = any(error.unreadable for error in errors)
        messages = problem_lines(problem for error in errors for problem in error.problems)
        if any(problem.defect.field == "kind" for error in errors for problem in error.problems):
            messages.append(
                "what reads passes foreign kinds over, and so do apply, create and delete with --skip-foreign"
            )
        fail(Exit.USAGE if unreadable else Exit.FAILURE, *messages)
    return loaded


@contextmanager
def _reading(inputs: list[tuple[str, bytes]]) -> Iterator[Callable[[int, int], None]]:
    """Hears how many objects of the one input, or how many inputs of several, were read; little is not shown."""
    if sum(len(data) for _, data in inputs) < LARGE:
        yield lambda _, __: None
        return
    from volsched.cli.progress import progress_bar

    with progress_bar("Reading", None) as update:
        yield update


def field_problems(loaded: list[Loaded]) -> list[str]:
    """What the field check has against each of them, with place and name."""
    return [
        f'{entry.place}: {entry.kind.name} "{entry.key}": {why}'
        for entry in loaded
        for why in field_faults(entry.kind, entry.manifest)
    ]


def _tell_unknown_fields(loaded: list[Loaded]) -> None:
    """A cluster of another version may have fields that we do not know; a misspelt one must not go unnoticed."""
    problems = field_problems(loaded)
    if problems:
        more = f"; {len(problems) - 1} more, see volsched validate" if problems[1:] else ""
        stderr.print(f"[yellow]warning:[/] {escape(problems[0] + more)}")


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
    if name.startswith(("http://", "https://")):
        from volsched.cli.fetched_manifests import downloaded

        return [(name, downloaded(name))]
    path = Path(name)
    if "://" in name and not path.exists():
        fail(Exit.USAGE, f"{name} cannot be read: of addresses, http:// and https:// work; or download it")
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


# Text files that a command reads line by line or writes as a whole; '-' is standard input or output.


def lines_of(name: str) -> Iterator[str]:
    """The lines of a file, compressed or not; one that cannot be read is reported before anything else is done."""
    if name == "-":
        return iter(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors=ERRORS))
    try:
        Path(name).open("rb").close()
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be read: {error.strerror}; check the path and its permissions")
    return lines_of_file(Path(name))


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, PRIVATE)


@contextmanager
def written(name: str) -> Iterator[IO[str]]:
    """A file that is complete or not there at all: written aside, then renamed."""
    if name == "-":
        yield sys.stdout
        return
    path, aside = Path(name), Path(f"{name}.part")
    try:
        # A log says who did what, and a store is measured by its anchor: their owner's, until he says else.
        aside.unlink(missing_ok=True)
        with open(aside, "x", encoding="utf-8", newline="", opener=_private) as out:
            yield out
        aside.replace(path)
    except OSError as error:
        fail(Exit.USAGE, f"{name} cannot be written: {error.strerror}; check the directory and its permissions")
    finally:
        aside.unlink(missing_ok=True)


# `volsched validate`: are these manifests what we would accept?

EXAMPLES = """
Examples:

volsched validate -f cluster.yaml

kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched validate -f -
"""


def validate(
    filename: Files = None, kustomize: Kustomization = None, namespace: NamespaceOfManifests = None
) -> None:
    """Check manifests and report every defect of every object; nothing is stored.

    Exit 1 if an object is invalid or has a field that its kind does not have, 2 if an input cannot be read as YAML
    or JSON. Objects of kinds that volsched does not know are passed over, which is said.
    """
    loaded = load_within(filename, kustomize, namespace, dump=True, tell_fields=False)
    problems = field_problems(loaded)
    if problems:
        fail(Exit.FAILURE, *problems)
    counts = Counter(entry.kind.name for entry in loaded)
    stdout.print(f"all valid: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
