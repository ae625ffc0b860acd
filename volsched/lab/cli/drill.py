"""`volsched drill`: break the system on purpose, and see that nothing is lost."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout, table_of
from volsched.lab.cli.drill_processes import REPORT_EXAMPLES, EngineOption, Html, report, run_processes
from volsched.lab.cli.drill_report import print_report
from volsched.lab.cli.drill_store import REHEARSE_EXAMPLES, REPLAY_EXAMPLES, rehearse, replay
from volsched.lab.drills.catalogue import described, scenario_named
from volsched.lab.drills.report import DrillReport
from volsched.lab.drills.scenario import SIM, DrillScenario, ScenarioError, read_seeds
from volsched.lab.simulation.generator import generate
from volsched.lab.simulation.schedule import Schedule, ScheduleError, dump_schedule, read_schedule
from volsched.lab.simulation.seeds import SeedFailure, Tally, cut_down, report_of, run_seeds

RUN_EXAMPLES = """**Examples**

`volsched drill run sim --seeds 1..500` five hundred simulated runs on all cores

`volsched drill run sim --seed 4711 --trace` one of them, with what every choice did

`volsched drill run sim --schedule failed.yaml` a run that was kept, choice by choice

`volsched drill run kill-worker --html report.html` real processes, one of them killed, and a report to look at

`volsched drill run kill-all --engine sqlite --seed 7` without PostgreSQL and Redis, at another random moment

`volsched drill run mine.yaml` a scenario of your own (docs/drills.md)
"""
LIST_EXAMPLES = """**Examples**

`volsched drill list`, then `volsched drill run NAME`
"""
app = typer.Typer(no_args_is_help=True, help="Break the system on purpose, and see that nothing is lost.")
app.command("replay", epilog=REPLAY_EXAMPLES)(replay)
app.command("rehearse", epilog=REHEARSE_EXAMPLES)(rehearse)
app.command("report", epilog=REPORT_EXAMPLES)(report)

Seeds = Annotated[str | None, typer.Option("--seeds", metavar="A..B", help="Which runs; each seed is one.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="One run alone.")]
File = Annotated[
    Path | None, typer.Option("--schedule", metavar="FILE", help="Play this schedule, as it was kept.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes at once; all cores by default.")]
Trace = Annotated[bool, typer.Option("--trace", help="Of one run: what every choice did.")]
Keep = Annotated[
    Path | None, typer.Option("--keep", metavar="DIR", help="Where the schedule of a failed run is written to.")
]


@app.command("list", epilog=LIST_EXAMPLES)
def list_drills(output: OutputOption = Output.table) -> None:
    """Every drill there is, in a line."""
    if output is Output.json:
        items = [{"name": name, "kind": kind, "about": about} for name, kind, about in described()]
        print_json({"apiVersion": "volsched.io/v1", "kind": "List", "items": items})
        return
    table = table_of("drill", "kind", "what it does")
    for row in described():
        table.add_row(*map(escape, row))
    stdout.print(table)


@app.command("run", epilog=RUN_EXAMPLES, no_args_is_help=True)
def run(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="As `drill list` shows it, or a scenario file.")
    ],
    seeds: Seeds = None,
    seed: Seed = None,
    schedule: File = None,
    jobs: Jobs = None,
    trace: Trace = False,
    keep: Keep = None,
    engine: EngineOption = None,
    html: Html = None,
    output: OutputOption = Output.table,
) -> None:
    """Run a drill and report. Exit 0 if nothing was violated, else 5. A failed simulation is cut down."""
    try:
        scenario = scenario_named(name)
        span = scenario.seeds if seeds is None else read_seeds(seeds)
        one = read_schedule(schedule) if schedule is not None else None
    except (ScenarioError, ScheduleError) as error:
        fail(Exit.USAGE, str(error))
    if sum(it is not None for it in (seed, seeds, schedule)) > 1:
        fail(Exit.USAGE, "--seed, --seeds and --schedule each say what to play; give one of them")
    if scenario.kind != SIM:
        options = {"seeds": seeds, "schedule": schedule, "jobs": jobs, "trace": trace or None, "keep": keep}
        if given := [it for it, value in options.items() if value is not None]:
            fail(Exit.USAGE, f"{scenario.name} is played with processes: --{given[0]} is for simulations")
        run_processes(scenario, engine, seed if seed is not None else span[0], html, output)
        return
    if html is not None or engine is not None:
        fail(Exit.USAGE, f"{scenario.name} is a simulation: --engine and --html are for drills with processes")
    if one is None and seed is not None:
        one = generate(seed, temper=scenario.temper)
    if one is not None:
        _one(scenario, one, trace, keep, output)
    else:
        _many(scenario, span, jobs, keep, output)


def _one(scenario: DrillScenario, schedule: Schedule, trace: bool, keep: Path | None, output: Output) -> None:
    verdict, failure = cut_down(schedule)
    tally = Tally(1, verdict.counts, {schedule.seed or 0: failure.violations} if failure else {})
    report = report_of(tally, name=scenario.name, about=scenario.about)
    if trace:
        for line in verdict.notes:
            stderr.print(escape(line))
    _tell(report, failure, keep, output, {"head": verdict.head})


def _many(
    scenario: DrillScenario, span: tuple[int, int], jobs: int | None, keep: Path | None, output: Output
) -> None:
    last, wanted = [0], span[1] - span[0] + 1

    def progress(tally: Tally) -> None:
        # A line now and then: whoever watches sees that it goes on, and a log is not filled.
        if stderr.is_terminal or tally.runs - last[0] >= max(wanted // 10, 1):
            last[0] = tally.runs
            bad = f", {len(tally.failed)} failed" if tally.failed else ""
            line = f"{tally.runs:,} of {wanted:,} runs, {tally.per_minute:,.0f} per minute{bad}"
            stderr.print(line, end="\r" if stderr.is_terminal else "\n")

    tally = run_seeds(*span, jobs=jobs, temper=scenario.temper, progress=progress)
    failure = None
    if tally.failed:
        first = min(tally.failed)
        stderr.print(f"seeds that failed: {', '.join(map(str, sorted(tally.failed)))}; cutting {first} down")
        failure = cut_down(generate(first, temper=scenario.temper))[1]
    _tell(report_of(tally, name=scenario.name, about=scenario.about), failure, keep, output, {})


def _tell(
    report: DrillReport, failure: SeedFailure | None, keep: Path | None, output: Output, more: dict[str, str]
) -> None:
    if output is Output.json:
        kept = {} if failure is None else {"schedule": [str(it) for it in failure.schedule.choices]}
        print_json({**report.as_json(), **more, **kept})
    else:
        print_report(report)
    if failure is not None:
        _print_failure(failure, keep)
    if not report.passed:
        raise typer.Exit(Exit.INTEGRITY)


def _print_failure(failure: SeedFailure, keep: Path | None) -> None:
    schedule = failure.schedule
    stderr.print(f"of {failure.choices} choices, these {len(schedule.choices)} are enough:")
    for line in failure.notes:
        stderr.print(f"  {escape(line)}")
    for it in failure.violations:
        stderr.print(f"[red]{escape(it)}[/red]")
    text = dump_schedule(schedule, found=failure.violations)
    if keep is None:
        stderr.print("keep it with --keep DIR, and play it again with --schedule FILE")
        return
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"sim-{schedule.seed if schedule.seed is not None else 'own'}.yaml"
    path.write_text(text)
    stderr.print(f"kept in {path}; play it again: volsched drill run sim --schedule {path}")
