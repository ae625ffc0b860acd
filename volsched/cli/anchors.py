"""`volsched anchor`: the keys that anchors of the log are signed with."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, fail, stdout
from volsched.log.integrity.anchor_keys import KeyFileError, make_keys

EXAMPLES = """**Examples**

`volsched anchor keygen anchor.key anchor.pub` makes a key for `VOLSCHED_ANCHOR_KEY_FILE`, and what to verify with

`volsched verify --anchor /mnt/anchors --public-key anchor.pub` checks all anchors of a directory
"""

app = typer.Typer(no_args_is_help=True, help="Anchors prove where the log stood: make the keys that sign them.")


@app.callback()
def _family() -> None:
    """A family although it has one command so far: it is called by its name."""


@app.command("keygen", no_args_is_help=True, epilog=EXAMPLES)
def keygen(
    private: Annotated[Path, typer.Argument(metavar="PRIVATE", help="The key that signs, for its owner alone.")],
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="What others verify with; keep it elsewhere.")],
) -> None:
    """Make an Ed25519 key. PRIVATE belongs to the machine that signs, never into the database or its backups.

    A file that is there is not replaced. Exit 2 where one cannot be written.
    """
    try:
        made = make_keys(private, public)
    except KeyFileError as error:
        fail(Exit.USAGE, str(error))
    stdout.print(escape(f"key {made.name}: {private} signs (VOLSCHED_ANCHOR_KEY_FILE), {public} verifies"))
