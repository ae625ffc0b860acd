"""`volsched record` and `open`: record a cluster for a support case, and answer questions about it elsewhere."""

import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from volsched.cli.api_process import Port, limits_of_settings
from volsched.cli.console import Exit, fail, stderr
from volsched.cli.live import live_store
from volsched.cli.manifest_input import lines_of
from volsched.cli.operator import user
from volsched.cli.remote.server_options import choice_of_command
from volsched.cli.store_option import explained
from volsched.log.migrations import scratch_store
from volsched.log.retention.backup import back_up, restore
from volsched.runtime.clock import system_clock
from volsched.runtime.extras import missing
from volsched.runtime.settings import configuration

RECORD_EXAMPLES = """**Examples**

`volsched record --context prod > case.jsonl` lists the cluster once; only what an observer keeps is in it
"""
OPEN_EXAMPLES = """**Examples**

`volsched open case.jsonl` then `volsched --server http://127.0.0.1:8700 explain pod shop/db-0`

`volsched restore case.jsonl --db case.db` keeps it as a store, for `--db case.db`
"""


def record() -> None:
    """Write the cluster that kubectl talks to, as it is now, to standard output, as a backup that can be verified.

    It has only the fields that `volsched manifests --show-projection` lists: no secret, environment or image.
    """
    if sys.stdout.isatty():
        fail(Exit.USAGE, "a recording is for a file, not for a terminal; run: volsched record > FILE")
    with (
        live_store(choice_of_command(), keeps_all=True) as database,
        explained(),
        tempfile.TemporaryDirectory(prefix="volsched-") as directory,
    ):
        file = Path(directory) / "case.jsonl"
        backup = back_up(database, out=file, now=system_clock())
        with file.open() as lines:
            for line in lines:
                sys.stdout.write(line)
    stderr.print(f"recorded: {backup.rows.get('events', 0)} objects")


def open_recording(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A file of record, or a backup of an observer's store.")
    ],
    port: Port = 8700,
) -> None:
    """Answer questions about a recorded cluster on loopback, until Ctrl-C; nothing is kept."""
    try:
        from volsched.api.listener import ListenError, address, listen, serve
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "server"))
    with explained(file), scratch_store(in_memory=True) as database:
        restore(database, lines_of(file))
        try:
            listening = listen("127.0.0.1", port)
        except ListenError as error:
            fail(Exit.USAGE, str(error))
        with closing(listening):
            url = address(listening)
            stderr.print(f"open on {url} until Ctrl-C; try: volsched --server {url} get pods -A")
            died = serve(
                database,
                listening,
                clock=system_clock,
                actor=f"api/{user()}",
                zonal_upgrade=False,
                configuration=configuration(None),
                limits=limits_of_settings(),
                read_only=True,
            )
        if died is not None:
            fail(Exit.FAILURE, f"the server ended: {died}")
