"""`volsched schedule`: run the whole system on a store until nothing is left to do."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout, table_of
from volsched.cli.progress import is_shown, progress_bar
from volsched.cli.store_option import Db, opened
from volsched.library import whole_system
from volsched.log.database import Database
from volsched.log.reads.lookups import placed_of_pods
from volsched.questions.get.describe import summary
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import run_until_idle
from volsched.runtime.system import System
from volsched.scheduling.rules.configuration import ConfigurationError
from volsched.workloads.controllers import zonal_report
from volsched.workloads.rules.repairs import ZonalReport

SCHEDULE_EXAMPLES = """**Examples**

`volsched schedule` places and binds all pods that wait, then reports the result for each

`volsched schedule --until-idle --timeout 300 -o json` waits longer, for scripts
"""

COUNT_SECONDS = 0.5
"""How often pods with a node are counted for the progress bar: there may be very many."""


def schedule(
    db: Db = None,
    config: Annotated[
        Path | None,
        typer.Option(help="The scheduler's configuration; else VOLSCHED_CONFIG, else profile volsched as it is."),
    ] = None,
    until_idle: Annotated[  # noqa: ARG001 (for scripts that name it; there is no other way to end)
        bool, typer.Option("--until-idle", help="Until nothing is left to do now; this is the default.")
    ] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Stop after so many seconds, even if work is left.")
    ] = 60.0,
    output: OutputOption = Output.table,
) -> None:
    """Schedule, bind and reconcile in this process until no work is left, then report the result for every pod.

    It waits for back-offs and deadlines, but not for pods that fit nowhere. Exit 6 if work was left when the time
    was over; what is done is kept, and another call continues.
    """
    with opened(db, creates=True) as database:
        idle, report = _run(database, timeout, config)
        with database.read() as connection:
            outcome = summary(connection) | {"zonalUpgrade": asdict(report)}
    if not report.empty:
        stderr.print(str(report))
    if output is Output.json:
        print_json(outcome)
    else:
        _show(outcome)
    if not idle:
        late = f"something still waits after {timeout:g} s: volsched in-flight and volsched status say for what"
        fail(Exit.TIMED_OUT, f"{late}; run volsched schedule again to continue")


def _run(database: Database, timeout: float, config: Path | None) -> tuple[bool, ZonalReport]:
    try:
        system = whole_system(database, config=config)
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)
    try:
        idle = _until_idle(system, timeout)
    finally:
        system.close()
    return idle, zonal_report(system.parts)


def _until_idle(system: System, timeout: float) -> bool:
    if not is_shown():
        return run_until_idle(system, clock=system_clock, timeout=timeout)
    with progress_bar("Scheduling", None) as update:
        counted = -COUNT_SECONDS

        def count(_: int) -> None:
            nonlocal counted
            if time.monotonic() - counted >= COUNT_SECONDS:
                with system.world.database.read() as connection:
                    update(*placed_of_pods(connection))
                counted = time.monotonic()

        return run_until_idle(system, clock=system_clock, timeout=timeout, progress=count)


def _show(outcome: dict[str, Any]) -> None:
    table = table_of("pod", "node", "claims", "state")
    for entry in outcome["pods"]:
        claims = ", ".join(f"{claim} → {volume or '-'}" for claim, volume in entry["claims"].items())
        table.add_row(*map(escape, (entry["pod"], entry["node"] or "-", claims, entry["state"])))
    stdout.print(table)
    bound = sum(1 for entry in outcome["pods"] if entry["node"])
    counts = ", ".join(f"{count} {state}" for state, count in outcome["bindings"].items()) or "none"
    stdout.print(f"{bound} of {len(outcome['pods'])} pods have a node; bindings: {counts}")
