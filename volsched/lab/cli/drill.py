"""`volsched drill`: injects faults, in a simulation or into real processes, and reports the result."""

import logging
import os
import shlex
import signal
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout, table_of
from volsched.lab.cli.drill_store import REHEARSE_EXAMPLES, REPLAY_EXAMPLES, rehearse, replay
from volsched.lab.drills.attached_scenario import attached_play
from volsched.lab.drills.process_scenario import Play, play_of
from volsched.lab.drills.report import DrillReport, RunEntry, SavedError, as_saved, index_page, page, read_saved
from volsched.lab.drills.scenario import (
    ATTACHED,
    SIM,
    DrillScenario,
    ScenarioError,
    described,
    read_seeds,
    scenario_named,
)
from volsched.lab.drills.timeline import DrillTimeline
from volsched.lab.faults import ENGINES, FAULTS
from volsched.lab.simulation.schedule import Schedule, ScheduleError, dump_schedule, read_schedule
from volsched.lab.simulation.seeds import SeedFailure, Tally, cut_down, generate, report_of, run_seeds
from volsched.lab.stack.programs import WheelMissingError
from volsched.runtime.clock import rfc3339, system_clock
from volsched.runtime.extras import missing

# A drill's report on the terminal.


def print_report(report: DrillReport) -> None:
    """The score and the invariants, for any drill."""
    table = table_of(report.drill, "")
    for what, figure in report.rows():
        table.add_row(escape(what), escape(figure))
    stdout.print(table)
    table = table_of("invariant", "what must hold", "violations")
    for number, what, count in report.by_invariant():
        table.add_row(str(number), what, str(count))
    stdout.print(table)
    for it in report.violations:
        stdout.print(f"[red]{escape(it)}[/red]")
    stdout.print("passed" if report.passed else f"[red]{escape(report.verdict)}[/red]")


# `volsched drill run NAME` with real processes, and `volsched drill report`, which shows a saved report.

REPORT_EXAMPLES = """**Examples**

`volsched drill run kill-all -o json > kill-all.json` then `volsched drill report kill-all.json`

`volsched drill report kill-all.json --html kill-all.html`
"""
INDEX_EXAMPLES = """**Examples**

`volsched drill run kill-all -o json > runs/kill-all.json`, others, then `volsched drill index runs`
"""
ATTEMPTS = 3
"""How often a drill is played at most while its fault meets no binding in flight."""
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="|".join(ENGINES),
        help="With processes: PostgreSQL, Redis and Celery, or one SQLite file. Default: the drill's first.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML file, with a timeline.")
]


def run_processes(
    scenario: DrillScenario, engine: str | None, seed: int, html: Path | None, output: Output
) -> None:
    """Exit 0 if all invariants hold, 5 if not, 6 if the drill did not finish or is inconclusive."""
    try:
        play = play_of(scenario)
    except ScenarioError as error:
        fail(Exit.USAGE, f"{scenario.name}: {error}")
    chosen = _engine(play, engine)
    if html is not None:
        check_writable(html)
    try:
        from volsched.lab.drills.process_drill import DrillError
        from volsched.lab.drills.process_drill import play as perform
        from volsched.lab.drills.process_work import ENDING
        from volsched.lab.stack.handle import StackError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "local-stack"))

    def end(*_: object) -> None:
        # Once: a second Ctrl-C would interrupt the shutdown and leave processes behind.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        logging.disable()
        stderr.print("ending the processes")
        raise KeyboardInterrupt

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        for attempt in range(seed, seed + ATTEMPTS):
            played = perform(play, engine=chosen, seed=attempt, report=lambda it: stderr.print(escape(it)))
            if played.report.failed or not played.report.inconclusive or attempt == seed + ATTEMPTS - 1:
                break
            stderr.print(f"no binding was in flight at the fault: repeating with seed {attempt + 1}")
    except WheelMissingError as error:
        fail(Exit.USAGE, str(error))
    except (DrillError, StackError) as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines())
    _show(dated(played.report), played.timeline, html, output)


def run_attached(scenario: DrillScenario, html: Path | None, output: Output) -> None:
    """Exit as with processes; Ctrl-C ends everything that was started."""
    try:
        play = attached_play(scenario)
    except ScenarioError as error:
        fail(Exit.USAGE, f"{scenario.name}: {error}")
    if html is not None:
        check_writable(html)
    try:
        from volsched.lab.drills.attached_drill import play_attached
        from volsched.lab.drills.process_drill import DrillError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "local-stack,cluster"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        played = play_attached(play, report=lambda it: stderr.print(escape(it)))
    except DrillError as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines())
    _show(dated(played), None, html, output)


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="A report of `drill run -o json`.")],
    html: Html = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a saved report. Exit as the drill did: 0 if it passed, 5 if it failed, 6 if it is inconclusive."""
    try:
        saved, timeline = read_saved(file)
    except SavedError as error:
        fail(Exit.USAGE, str(error))
    _show(saved, timeline, html, output)


def _engine(play: Play, engine: str | None) -> str:
    if engine is None:
        return play.engines[0]
    if engine not in play.engines:
        known = " and ".join(play.engines)
        fail(Exit.USAGE, f'{play.name} cannot be played with --engine "{engine}"; give {known}')
    return engine


def check_writable(html: Path) -> None:
    """Checked before the drill, which takes a minute."""
    if not html.parent.is_dir():
        fail(Exit.USAGE, f"--html: {html.parent} is no directory; create it first, or write elsewhere")
    if html.is_dir() or not os.access(html if html.exists() else html.parent, os.W_OK):
        fail(Exit.USAGE, f"--html: {html} cannot be written; name a file in a directory of yours")


def dated(report: DrillReport) -> DrillReport:
    """The report with the time, version and command of the run."""
    return replace(
        report,
        played_at=rfc3339(system_clock()),
        version=version("volsched"),
        command=shlex.join(["volsched", *sys.argv[1:]]),
    )


def index(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of reports of `drill run -o json`.")],
) -> None:
    """Write DIR/index.html, with all reports in a directory, and a page for each of them."""
    if not directory.is_dir():
        fail(Exit.USAGE, f"{directory} is no directory; save reports there with: volsched drill run NAME -o json")
    entries: list[RunEntry] = []
    for file in sorted(directory.glob("*.json")):
        try:
            saved, timeline = read_saved(file)
        except SavedError as error:
            stderr.print(f"left out: {escape(str(error))}")
            continue
        write_html(file.with_suffix(".html"), page(saved, timeline))
        entries.append(RunEntry(saved, f"{file.stem}.html"))
    if not entries:
        fail(Exit.NOT_FOUND, f"{directory} has no report; save one with: volsched drill run NAME -o json > FILE")
    write_html(directory / "index.html", index_page(entries))
    passed = sum(it.report.passed for it in entries)
    stdout.print(f"{escape(str(directory / 'index.html'))}: {len(entries)} runs, {passed} passed")


def write_html(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        fail(Exit.USAGE, f"{file}: it cannot be written: {error.strerror}")


def _show(shown: DrillReport, timeline: DrillTimeline | None, html: Path | None, output: Output) -> None:
    if output is Output.json:
        print_json(as_saved(shown, timeline))
    else:
        print_report(shown)
    if html is not None:
        write_html(html, page(shown, timeline))
        stderr.print(f"written to {escape(str(html))}")
    if not shown.passed:
        raise typer.Exit(Exit.INTEGRITY if shown.failed else Exit.TIMED_OUT)


RUN_EXAMPLES = """**Examples**

`volsched drill run sim --seeds 1..500` 500 simulated runs on all cores

`volsched drill run sim --seed 4711 --trace` a single run, with the result of every choice

`volsched drill run sim --schedule failed.yaml` a saved run, choice by choice

`volsched drill run kill-worker --html report.html` real processes, one of them killed, and an HTML report

`volsched drill run kill-all --engine sqlite --seed 7` without PostgreSQL and Redis, at another random moment

`volsched drill run attached-kills` volsched on a foreign cluster, killed at every named point

`volsched drill run mine.yaml` a scenario of your own (docs/drills.md)
"""
LIST_EXAMPLES = """**Examples**

`volsched drill list`, then `volsched drill run NAME`

`volsched drill list --faults` the faults for a scenario of your own (docs/drill-faults.md)
"""
app = typer.Typer(no_args_is_help=True, help="Inject faults, and prove that nothing is lost.")
app.command("replay", epilog=REPLAY_EXAMPLES)(replay)
app.command("rehearse", epilog=REHEARSE_EXAMPLES)(rehearse)
app.command("report", epilog=REPORT_EXAMPLES)(report)
app.command("index", epilog=INDEX_EXAMPLES, no_args_is_help=True)(index)

Seeds = Annotated[str | None, typer.Option("--seeds", metavar="A..B", help="A simulated run for each seed.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="The seed of a single run.")]
File = Annotated[Path | None, typer.Option("--schedule", metavar="FILE", help="Play this saved schedule.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes at once; all cores by default.")]
Trace = Annotated[bool, typer.Option("--trace", help="Of a single run: show the result of every choice.")]
Keep = Annotated[
    Path | None, typer.Option("--keep", metavar="DIR", help="Directory for the schedule of a failed run.")
]


@app.command("list", epilog=LIST_EXAMPLES)
def list_drills(
    faults: Annotated[bool, typer.Option("--faults", help="List faults instead.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """List all drills; or all faults that a scenario can inject."""
    columns = ("fault", "way", "on", "about") if faults else ("name", "kind", "about")
    rows = [(it.usage, it.way, ", ".join(it.on), it.about) for it in FAULTS] if faults else described()
    if output is Output.json:
        items = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"apiVersion": "volsched.io/v1", "kind": "List", "items": items})
        return
    titles = ("fault", "way", "on", "what it does") if faults else ("drill", "kind", "what it does")
    table = table_of(*titles)
    for row in rows:
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
    """Run a drill and report. Exit 0 if nothing was violated, else 5. A failed simulation is shrunk."""
    try:
        scenario = scenario_named(name)
        span = scenario.seeds if seeds is None else read_seeds(seeds)
        one = read_schedule(schedule) if schedule is not None else None
    except (ScenarioError, ScheduleError) as error:
        fail(Exit.USAGE, str(error))
    if sum(it is not None for it in (seed, seeds, schedule)) > 1:
        fail(Exit.USAGE, "--seed, --seeds and --schedule each choose the runs; give one of them")
    if scenario.kind == ATTACHED:
        options = {
            "seeds": seeds,
            "seed": seed,
            "schedule": schedule,
            "jobs": jobs,
            "trace": trace or None,
            "keep": keep,
            "engine": engine,
        }
        if given := [it for it, value in options.items() if value is not None]:
            fail(Exit.USAGE, f"{scenario.name} is played on a foreign cluster: --{given[0]} is for other drills")
        run_attached(scenario, html, output)
        return
    if scenario.kind != SIM:
        options = {"seeds": seeds, "schedule": schedule, "jobs": jobs, "trace": trace or None, "keep": keep}
        if given := [it for it, value in options.items() if value is not None]:
            fail(Exit.USAGE, f"{scenario.name} is played with processes: --{given[0]} is for simulations")
        run_processes(scenario, engine, seed if seed is not None else span[0], html, output)
        return
    if engine is not None:
        fail(Exit.USAGE, f"{scenario.name} is a simulation: --engine is for drills with processes")
    if html is not None:
        check_writable(html)
    if one is None and seed is not None:
        one = generate(seed, temper=scenario.temper)
    if one is not None:
        _one(scenario, one, trace, keep, html, output)
    else:
        _many(scenario, span, jobs, keep, html, output)


def _one(
    scenario: DrillScenario,
    schedule: Schedule,
    trace: bool,
    keep: Path | None,
    html: Path | None,
    output: Output,
) -> None:
    verdict, failure = cut_down(schedule)
    tally = Tally(1, verdict.counts, {schedule.seed or 0: failure.violations} if failure else {})
    report = report_of(tally, name=scenario.name, about=scenario.about)
    if trace:
        for line in verdict.notes:
            stderr.print(escape(line))
    _print_outcome(report, failure, keep, html, output, {"head": verdict.head})


def _many(
    scenario: DrillScenario,
    span: tuple[int, int],
    jobs: int | None,
    keep: Path | None,
    html: Path | None,
    output: Output,
) -> None:
    last, wanted = [0], span[1] - span[0] + 1

    def progress(tally: Tally) -> None:
        # A line per tenth of the runs: a log shows progress, and is not filled.
        if stderr.is_terminal or tally.runs - last[0] >= max(wanted // 10, 1):
            last[0] = tally.runs
            bad = f", {len(tally.failed)} failed" if tally.failed else ""
            line = f"{tally.runs:,} of {wanted:,} runs, {tally.per_minute:,.0f} per minute{bad}"
            stderr.print(line, end="\r" if stderr.is_terminal else "\n")

    tally = run_seeds(*span, jobs=jobs, temper=scenario.temper, progress=progress)
    failure = None
    if tally.failed:
        first = min(tally.failed)
        stderr.print(f"seeds that failed: {', '.join(map(str, sorted(tally.failed)))}; shrinking {first}")
        failure = cut_down(generate(first, temper=scenario.temper))[1]
    _print_outcome(report_of(tally, name=scenario.name, about=scenario.about), failure, keep, html, output, {})


def _print_outcome(
    report: DrillReport,
    failure: SeedFailure | None,
    keep: Path | None,
    html: Path | None,
    output: Output,
    more: dict[str, str],
) -> None:
    report = dated(report)
    if output is Output.json:
        kept = {} if failure is None else {"schedule": [str(it) for it in failure.schedule.choices]}
        print_json({**report.as_json(), **more, **kept})
    else:
        print_report(report)
    if html is not None:
        write_html(html, page(report, None))
        stderr.print(f"written to {escape(str(html))}")
    if failure is not None:
        _print_failure(failure, keep)
    if not report.passed:
        raise typer.Exit(Exit.INTEGRITY)


def _print_failure(failure: SeedFailure, keep: Path | None) -> None:
    schedule = failure.schedule
    stderr.print(f"of {failure.choices} choices, these {len(schedule.choices)} are enough to fail:")
    for line in failure.notes:
        stderr.print(f"  {escape(line)}")
    for it in failure.violations:
        stderr.print(f"[red]{escape(it)}[/red]")
    text = dump_schedule(schedule, violations=failure.violations)
    if keep is None:
        stderr.print("save it with --keep DIR, and play it again with --schedule FILE")
        return
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"sim-{schedule.seed if schedule.seed is not None else 'own'}.yaml"
    path.write_text(text)
    stderr.print(f"saved in {path}; play it again: volsched drill run sim --schedule {path}")
