"""Files that a command reads or writes: manifests of `-f` and `-k`, and text files; `volsched validate`."""

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
KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
LARGE = 1 << 20
"""From so many bytes of manifests on, progress is shown while they are read."""

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
    typer.Option("--kustomize", "-k", metavar="DIR", help="Manifests that kustomize builds; a directory or URL."),
]
NamespaceOfManifests = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="The namespace of objects that name none, else 'default'; objects that name another are refused.",
        autocompletion=complete_namespace,
    ),
]
SkipForeign = Annotated[
    bool, typer.Option("--skip-foreign", help="Skip kinds that volsched does not know, with a note.")
]


def load_inputs(
    files: list[str] | None,
    kustomize: str | None = None,
    *,
    namespace: str | None = None,
    dump: bool = False,
    warn_of_fields: bool = True,
) -> list[Loaded]:
    """All objects of all inputs; if any has a defect, the command ends with every defect of every input.

    `namespace` is for objects that name none. `dump`: the input comes from a cluster, which has kinds that we do
    not know; these, and objects that are there twice, are skipped with a note. `warn_of_fields`: unknown fields
    cause a warning; without it, the caller checks for them.
    """
    names = [*(files or ())]
    if not names and kustomize is None:
        fail(Exit.USAGE, "say which manifests: -f FILE|DIR|URL|-, or -k DIR")
    inputs = _without_kustomizations([item for name in names for item in _read(name)], names, skips=dump)
    if kustomize is not None:
        from volsched.cli.fetched_manifests import kustomize_output

        inputs.append((f"kustomize {kustomize}", kustomize_output(kustomize)))
    skipped = Skipped(in_directory=any(Path(name).is_dir() for name in names)) if dump else None
    # A dump may come from a newer cluster: unknown fields of valid objects only cause a warning, below.
    unknown = UnknownFields.OF_REFUSED if dump and warn_of_fields else UnknownFields.OF_ALL
    loaded = _load(inputs, skipped, namespace or "", unknown)
    if skipped is not None and str(skipped):
        stderr.print(escape(f"note: {skipped}"))
    if not loaded:
        where = ", ".join(source for source, _ in inputs[:3]) or "the input"
        fail(Exit.USAGE, f"no objects in {where}; give at least one manifest with apiVersion and kind")
    if dump and warn_of_fields:
        _warn_of_unknown_fields(loaded)
    return loaded


def _without_kustomizations(
    inputs: list[tuple[str, bytes]], names: list[str], *, skips: bool
) -> list[tuple[str, bytes]]:
    """Refuses a kustomization: `-f` reads files as they are, and a kustomization says that they must be built.

    Where foreign objects are skipped, a kustomization in a directory is skipped too.
    """
    kustomizations = [it for it, _ in inputs if Path(it).name in KUSTOMIZATIONS and "://" not in it]
    if not kustomizations:
        return inputs
    first, more = Path(kustomizations[0]), f", and {len(kustomizations) - 1} more" if kustomizations[1:] else ""
    if not skips or {str(Path(name)) for name in names} & {*kustomizations}:
        fail(Exit.USAGE, f"{first}{more}: -f does not build a kustomization; give -k {first.parent} instead")
    note = f"note: skipped {first}{more}: -f does not build a kustomization, -k {first.parent} does"
    stderr.print(escape(note))
    return [item for item in inputs if item[0] not in kustomizations]


def load_within(
    files: list[str] | None,
    kustomize: str | None,
    namespace: str | None,
    *,
    dump: bool = False,
    warn_of_fields: bool = True,
) -> list[Loaded]:
    """`load_inputs`; objects of another namespace than the given one are refused, as with kubectl."""
    loaded = load_inputs(files, kustomize, namespace=namespace, dump=dump, warn_of_fields=warn_of_fields)
    others = [it for it in loaded if it.kind.namespaced and it.value.meta.namespace != namespace]
    if namespace is not None and others:
        remedy = f'is not of namespace "{namespace}"; leave -n out, or choose that of the object'
        fail(Exit.USAGE, *(f'{it.place}: {it.kind.name} "{it.key}" {remedy}' for it in others))
    return loaded


def _load(
    inputs: list[tuple[str, bytes]], skipped: Skipped | None, namespace: str, unknown: UnknownFields
) -> list[Loaded]:
    loaded: list[Loaded] = []
    errors: list[ManifestError] = []
    with _reading(inputs) as progress:
        for number, (source, data) in enumerate(inputs):
            if len(inputs) > 1:
                progress(number, len(inputs))
            try:
                object_progress = progress if len(inputs) == 1 else None
                loaded += load_manifests(
                    data,
                    source=source,
                    namespace=namespace,
                    skipped=skipped,
                    unknown=unknown,
                    progress=object_progress,
                )
            except ManifestError as error:
                if skipped is not None and skipped.in_directory and error.unreadable:
                    skipped.strays.append(source)
                else:
                    errors.append(error)
    if skipped is not None:
        loaded = newest(loaded, skipped)
    errors += _repetitions(loaded)
    if errors:
        unreadable = any(error.unreadable for error in errors)
        messages = problem_lines(problem for error in errors for problem in error.problems)
        if skipped is None and any(
            problem.defect.field == "kind" for error in errors for problem in error.problems
        ):
            messages.append(
                "commands that only read skip foreign kinds, as do apply, create and delete with --skip-foreign"
            )
        fail(Exit.USAGE if unreadable else Exit.FAILURE, *messages)
    return loaded


@contextmanager
def _reading(inputs: list[tuple[str, bytes]]) -> Iterator[Callable[[int, int], None]]:
    """Takes the number of objects read, or of inputs if there are several; a small input shows no progress."""
    if sum(len(data) for _, data in inputs) < LARGE:
        yield lambda _, __: None
        return
    from volsched.cli.progress import progress_bar

    with progress_bar("Reading", None) as update:
        yield update


def field_problems(loaded: list[Loaded]) -> list[str]:
    """The findings of the field check for each object, with its place and name."""
    return [
        f'{entry.place}: {entry.kind.name} "{entry.key}": {why}'
        for entry in loaded
        for why in field_faults(entry.kind, entry.manifest)
    ]


def _warn_of_unknown_fields(loaded: list[Loaded]) -> None:
    """A cluster of another version may have fields that we do not know; a misspelt one must not go unnoticed."""
    problems = field_problems(loaded)
    if problems:
        more = f"; {len(problems) - 1} more, see volsched validate" if problems[1:] else ""
        stderr.print(f"[yellow]warning:[/] {escape(problems[0] + more)}")


def _repetitions(loaded: list[Loaded]) -> list[ManifestError]:
    """Objects that are in two inputs; the loader has reported those that are in one input twice."""
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
        from volsched.cli.fetched_manifests import download

        return [(name, download(name))]
    path = Path(name)
    if "://" in name and not path.exists():
        fail(Exit.USAGE, f"{name} cannot be read: of addresses, only http:// and https:// work; or download it")
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
    """The lines of a file, compressed or not; one that cannot be read is reported before anything is done."""
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
def output_file(name: str) -> Iterator[IO[str]]:
    """A new text file. It is written aside and renamed at the end, so that no incomplete one is left."""
    if name == "-":
        yield sys.stdout
        return
    path, aside = Path(name), Path(f"{name}.part")
    try:
        # For the owner only: a log says who did what, and an anchor must not be changed.
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
    or JSON. Objects of kinds that volsched does not know are skipped, with a note.
    """
    loaded = load_within(filename, kustomize, namespace, dump=True, warn_of_fields=False)
    problems = field_problems(loaded)
    if problems:
        fail(Exit.FAILURE, *problems)
    counts = Counter(entry.kind.name for entry in loaded)
    stdout.print(f"all valid: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
