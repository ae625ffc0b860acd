"""Putting objects into a store and letting the system work on them: `apply`, `schedule`."""

from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout
from volsched.cli.inputs import Files, load_files
from volsched.cli.stores import Db, opened
from volsched.core.applying import Applied, apply_object
from volsched.core.decision import Decision, States
from volsched.engine.clock import rfc3339, system_clock
from volsched.engine.runner import run_until_idle
from volsched.engine.system import embedded
from volsched.events.streams import stream_of
from volsched.insight.summary import summary
from volsched.model.manifests import Loaded
from volsched.store.commands import Command
from volsched.store.database import Database
from volsched.store.transaction import execute

APPLY_EXAMPLES = """**Examples**

`volsched apply -f cluster.yaml` makes or changes every object of the file

`kubectl get pv,sc -o yaml | volsched apply -f -`
"""
SCHEDULE_EXAMPLES = """**Examples**

`volsched schedule` places and binds all pods that wait, then says what became of them

`volsched schedule --timeout 300 -o json`
"""
BATCH = 500
SHORT_ID = 12


def apply(files: Files, db: Db = None) -> None:
    """Create the objects of manifests, or change those that are there to what the manifests say."""
    loaded = load_files(files)
    problems = []
    with opened(db) as database:
        for start in range(0, len(loaded), BATCH):
            part = loaded[start : start + BATCH]
            commands = [_applying(entry) for entry in part]
            for entry, outcome in zip(part, execute(database, commands, now=system_clock()), strict=True):
                name = f"{entry.kind.name.lower()}/{entry.key}"
                if isinstance(outcome, Exception):
                    problems.append(f"{entry.place}: {outcome}")
                else:
                    stdout.print(escape(f"{name} {outcome.result['applied']}"))
    if problems:
        fail(Exit.FAILURE, *problems)


def schedule(
    db: Db = None,
    timeout: Annotated[
        float, typer.Option(min=0, help="Stop after so many seconds, whatever still waits.")
    ] = 60.0,
    output: OutputOption = Output.table,
) -> None:
    """Schedule, bind and reconcile in this process until nothing moves, then say what became of every pod."""
    with opened(db) as database:
        idle = _run(database, timeout)
        with database.read() as connection:
            told = summary(connection)
    if output is Output.json:
        print_json(told)
    else:
        _show(told)
    if not idle:
        fail(Exit.TIMED_OUT, f"something still waits after {timeout:g} s; run volsched schedule again to go on")


def _run(database: Database, timeout: float) -> bool:
    system = embedded(
        database, owner=uuid4().hex[:SHORT_ID], clock=system_clock, new_id=lambda: uuid4().hex[:SHORT_ID]
    )
    try:
        if not stderr.is_terminal:
            return run_until_idle(system, clock=system_clock, timeout=timeout)
        with stderr.status("scheduling") as status:
            return run_until_idle(
                system,
                clock=system_clock,
                timeout=timeout,
                progress=lambda position: status.update(f"scheduling, log at {position}"),
            )
    finally:
        system.close()


def _applying(entry: Loaded) -> Command:
    stream = stream_of(entry.kind.name, entry.key)
    uid, now = str(uuid4()), rfc3339(system_clock())

    def decide(states: States) -> Decision:
        event, applied = apply_object(states.get(stream), entry.kind, entry.manifest, uid=uid, now=now)
        result = {"applied": applied.value}
        if event is None or applied is Applied.UNCHANGED:
            return Decision(result=result)
        return Decision(events=(event,), result=result)

    return Command(actor="cli/apply", streams=(stream,), decide=decide)


def _show(told: dict[str, Any]) -> None:
    table = Table("pod", "node", "claims", "state", box=None, header_style="bold")
    for entry in told["pods"]:
        claims = ", ".join(f"{claim} → {volume or '-'}" for claim, volume in entry["claims"].items())
        table.add_row(*map(escape, (entry["pod"], entry["node"] or "-", claims, entry["state"])))
    stdout.print(table)
    bound = sum(1 for entry in told["pods"] if entry["node"])
    counts = ", ".join(f"{count} {state}" for state, count in told["bindings"].items()) or "none"
    stdout.print(f"{bound} of {len(told['pods'])} pods have a node; bindings: {counts}")
