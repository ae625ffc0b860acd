"""The consoles, the exit codes, errors that end a command, and lengths of time."""

import json
import os
import shutil
import sys
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from volsched.kube.display_text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    stdout: Console
    stderr: Console


class Exit(IntEnum):
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNSATISFIABLE = 4
    INTEGRITY = 5
    TIMED_OUT = 6
    CONFLICT = 7


class Output(StrEnum):
    table = "table"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]

WIDE = 400
"""The width for a pipe or a file, so that tables are not wrapped there."""


def __getattr__(name: str) -> Any:
    """`stdout` and `stderr`, which load rich: modules that `volsched get` loads name them where they print."""
    if name not in ("stdout", "stderr"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from volsched.cli import visible_console

    return getattr(visible_console, name)


def on_terminal() -> bool:
    """Whether stdout is a terminal by rich's rules; rich is loaded only if the environment may override them."""
    if os.environ.keys() & {"FORCE_COLOR", "TTY_COMPATIBLE"}:
        from volsched.cli.visible_console import stdout

        return stdout.is_terminal
    return sys.stdout.isatty()


def output_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def table_of(*headers: str, padding: tuple[int, int, int, int] = (0, 1, 0, 1)) -> "Table":
    """A table that a narrow terminal breaks within cells: names are never cut off."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=padding)
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def fail(code: Exit, *messages: str) -> NoReturn:
    """End the command: each message is one line that says what is wrong and what to do next."""
    from rich.markup import escape

    from volsched.cli.visible_console import stderr

    for message in messages:
        stderr.print(f"[bold red]error:[/] {escape(message)}")
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    """Print JSON, in colours if the terminal has them."""
    from rich.highlighter import JSONHighlighter

    from volsched.cli.visible_console import stdout

    stdout.print(JSONHighlighter()(visible(json.dumps(document, indent=2, ensure_ascii=False))), soft_wrap=True)


# Lengths of time as people write them: `90s`, `15m`, `2h`, `7d`, `4w`.


def duration(text: str) -> int:
    from volsched.questions.history.moments import read_duration

    length = read_duration(text)
    if length is None:
        fail(Exit.USAGE, f'"{text}" is not a length of time; write a number and s, m, h, d or w, such as 7d')
    return length
