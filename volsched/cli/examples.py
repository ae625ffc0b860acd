"""`volsched example`: the example clusters and programs of this package, for users without manifests."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, fail, stdout, table_of
from volsched.cli.manifest_input import load_inputs
from volsched.cli.objects import submit_objects
from volsched.cli.operator import Reason
from volsched.cli.output import write
from volsched.cli.store_option import Db
from volsched.objects.submission import Verb

LIST_EXAMPLES = """**Examples**

`volsched example list` shows what there is, a line each
"""
SHOW_EXAMPLES = """**Examples**

`volsched example show local-database` prints the manifests

`volsched example show local-database | volsched explain pod shop/db-1 -f -` asks about them without a store

`volsched example show custom_scheduler.py > mine.py` is a scheduler of your own on our rules
"""
APPLY_EXAMPLES = """**Examples**

`volsched example apply local-database` puts it into your store, which is created if there is none

`volsched example apply local-database --db try.db && volsched schedule --db try.db`
"""
_PACKAGED = Path(__file__).parents[1] / "examples"
_CHECKOUT = Path(__file__).parents[2] / "docs" / "examples"

app = typer.Typer(help="Small example clusters.", no_args_is_help=True)


def _directory() -> Path:
    """The directory of the examples: docs/ of a checkout, or inside the package in a wheel."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def _files() -> dict[str, Path]:
    """Clusters by name, then programs by file name."""
    clusters, programs = (sorted(_directory().glob(it)) for it in ("*.yaml", "*.py"))
    return {file.stem: file for file in clusters} | {file.name: file for file in programs}


def complete_example(incomplete: str) -> list[str]:
    return [name for name in _files() if name.startswith(incomplete)]


NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="As `example list` shows it.", autocompletion=complete_example)
]


@app.command("list", epilog=LIST_EXAMPLES)
def list_examples() -> None:
    """List the example clusters and programs."""
    table = table_of("name", "what it is")
    for name, file in _files().items():
        with file.open(encoding="utf-8") as lines:
            table.add_row(name, escape(next(lines).strip('# "\n')))
    stdout.print(table)


@app.command("show", epilog=SHOW_EXAMPLES)
def show_example(name: NameArgument) -> None:
    """Print the manifests or the program of an example; its first comment says what to expect."""
    write(_file(name).read_text(encoding="utf-8").rstrip("\n"))


@app.command("apply", epilog=APPLY_EXAMPLES)
def apply_example(name: NameArgument, reason: Reason = None, db: Db = None) -> None:
    """Put the objects of an example into the store; then see `volsched schedule` and `volsched explain`."""
    file = _file(name)
    if file.suffix != ".yaml":
        fail(Exit.USAGE, f"{name} is a program, not a cluster; run: volsched example show {name} > {name}")
    submit_objects(load_inputs([str(file)]), Verb.APPLY, reason, db)


def _file(name: str) -> Path:
    files = _files()
    if name not in files:
        fail(Exit.NOT_FOUND, f'there is no example "{name}"; there are {", ".join(files)}')
    return files[name]
