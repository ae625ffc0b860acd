"""The actor and the reason of a command, kept with every change."""

import getpass
from typing import Annotated

import typer

from volsched.cli.console import Exit, fail

Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why it is done; kept with every change.")
]


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container the user may be a bare number.
        return "unknown"


def actor(verb: str) -> str:
    """The actor in the log: `cli/apply/ada`."""
    return f"cli/{verb}/{user()}"


def checked_reason(reason: str | None) -> str | None:
    if reason is not None and not reason.strip():
        fail(Exit.USAGE, "the reason is empty: give one, which the log keeps, or leave --reason out")
    return None if reason is None else reason.strip()
