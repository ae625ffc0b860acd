"""`volsched top`: the screen of `volsched status`, refreshed until q or Ctrl-C."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from rich.live import Live

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.cli.question_command import answer_to, client_of
from volsched.cli.status_output import screen
from volsched.cli.store_option import Db
from volsched.runtime.clock import system_clock

EXAMPLES = """**Examples**

`volsched top` shows what is in flight, who waits and what is left, every two seconds

`volsched --server http://127.0.0.1:8700 top --interval 5`

`volsched top --times 1` prints one screen, as `volsched status` does
"""
REST = 4
"""It pauses at least so many times as long as a refresh takes, to limit the load on a large store."""


def top(
    db: Db = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between screens.")] = 2.0,
    times: Annotated[
        int, typer.Option("--times", min=0, help="End after so many screens; 0: at q or Ctrl-C.")
    ] = 0,
) -> None:
    """Show the status of the store continuously: in flight, pending by reason, storage, work, leases."""
    if not stdout.is_terminal and times == 0:
        fail(Exit.USAGE, "top draws on a terminal; use volsched status, or volsched top --times N, in a pipe")
    refreshes = 0
    with (
        # Ctrl-C ends it as q does, and is no failure.
        suppress(KeyboardInterrupt),
        client_of(db) as client,
        single_keys(sys.stdin.fileno() if sys.stdin.isatty() else None) as keys,
        Live(console=stdout, auto_refresh=False, screen=False, transient=times == 0) as live,
    ):
        while True:
            began = time.monotonic()
            with errors_below(live):
                document = answer_to(client, "status")
            live.update(screen(document, now=system_clock()), refresh=True)
            refreshes += 1
            if refreshes == times:
                return
            if is_ended(keys, seconds=max(interval, REST * (time.monotonic() - began))):
                return


@contextmanager
def errors_below(live: Live) -> Iterator[None]:
    """Write the error that ends the command below the last screen, which stays. The console for errors does not
    know of the live screen, which would overwrite it."""
    try:
        with stderr.capture() as errors:
            yield
    except typer.Exit:
        live.transient = False
        live.stop()
        sys.stderr.write(errors.get())
        raise


@contextmanager
def single_keys(terminal: int | None) -> Iterator[int | None]:
    """The terminal, in a mode in which it delivers each key at once and shows none."""
    if terminal is None:
        yield None
        return
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSANOW)
    try:
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def is_ended(terminal: int | None, *, seconds: float) -> bool:
    """Wait so long; True at once if q is pressed, as in top and less, or the terminal is closed."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if terminal is None:
            time.sleep(left)
        elif select.select([terminal], [], [], left)[0] and os.read(terminal, 1) in (b"q", b"Q", b""):
            return True
    return False
