"""`volsched demo`: shows volsched in a few seconds on a temporary store."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, fail, stdout
from volsched.cli.output import Lines
from volsched.cli.store_option import explained
from volsched.lab.demo.stage import DemoScene, Rows, SceneError, Stage, StageLine
from volsched.lab.demo.story import SCENES, directory_for, stage_in

EXAMPLES = """**Examples**

`volsched demo` takes a few seconds, needs no service, and leaves nothing behind

`volsched demo --keep` keeps the store, and says how to look at it
"""


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the store, and say how to look at it.")] = False,
) -> None:
    """Show volsched on a small cluster: placing, explaining, a killed worker, a rollback, the history, the proof.

    Everything really happens, in a temporary store. Each step checks its own outcome: exit 0 only if all of them
    did what they say, else 1 with the step that did not.
    """
    begun = time.monotonic()
    with explained(), directory_for(keep=keep) as directory, stage_in(directory) as stage:
        try:
            for number, scene in enumerate(SCENES, start=1):
                _play(number, scene, stage)
        finally:
            # After a failed step too.
            if keep:
                _print_next_commands(directory / "demo.db")
    stdout.print(f"[bold green]all {len(SCENES)} steps did what they say[/], in {time.monotonic() - begun:.1f} s")


def _play(number: int, scene: DemoScene, stage: Stage) -> None:
    stdout.print(f"[bold cyan]{number}/{len(SCENES)} {escape(scene.title)}[/]")
    try:
        for told in scene.play(stage):
            _print(told)
    except SceneError as error:
        fail(Exit.FAILURE, f"step {number} ({scene.title}): {error}")
    stdout.print()


def _print(part: StageLine) -> None:
    if not isinstance(part, Rows):
        stdout.print(f"  {escape(part)}")
        return
    first, *others = part.headers
    Lines([f"  {first}", *others]).write([[f"  {row[0]}", *row[1:]] for row in part.rows])


def _print_next_commands(store: Path) -> None:
    stdout.print(f"the store is kept: {escape(str(store))}; look at it with")
    for words in ("get po,pvc,pv,bindings -A", "explain pod shop/db-0", "audit rollbacks", "verify"):
        stdout.print(f"  volsched {words} --db {escape(str(store))}")
