"""`volsched drill run NAME` with real processes, and `volsched drill report`: what was saved, shown again."""

import logging
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr
from volsched.lab.cli.drill_report import print_report
from volsched.lab.drills.html_report import page
from volsched.lab.drills.process_scenario import ENGINES, Play, play_of
from volsched.lab.drills.report import DrillReport, SavedError, as_saved, read_saved
from volsched.lab.drills.scenario import DrillScenario, ScenarioError
from volsched.lab.drills.timeline import DrillTimeline
from volsched.lab.stack.postgres_wheel import INSTALL, WheelMissingError

REPORT_EXAMPLES = """**Examples**

`volsched drill run kill-all -o json > kill-all.json` then `volsched drill report kill-all.json`

`volsched drill report kill-all.json --html kill-all.html`
"""
ATTEMPTS = 3
"""So often a drill is played whose fault met nothing."""
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="|".join(ENGINES),
        help="With processes: PostgreSQL, Redis and Celery, or one SQLite file. The first that the drill knows.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML file, with a picture.")
]


def run_processes(
    scenario: DrillScenario, engine: str | None, seed: int, html: Path | None, output: Output
) -> None:
    """Exit 0 where everything holds, 5 where not, 6 where it was not played to its end or proves nothing."""
    try:
        play = play_of(scenario)
    except ScenarioError as error:
        fail(Exit.USAGE, f"{scenario.name}: {error}")
    chosen = _engine(play, engine)
    if html is not None:
        _check_writable(html)
    try:
        from volsched.lab.drills.process_drill import DrillError
        from volsched.lab.drills.process_drill import play as perform
        from volsched.lab.drills.process_places import ENDING
        from volsched.lab.stack.handle import StackError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: {INSTALL}")

    def end(*_: object) -> None:
        # Once: whoever presses Ctrl-C again would leave processes behind that are just being ended.
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
            played = perform(play, engine=chosen, seed=attempt, told=lambda it: stderr.print(escape(it)))
            if played.report.failed or not played.report.inconclusive or attempt == seed + ATTEMPTS - 1:
                break
            stderr.print(f"no binding was in flight at the fault: once more, with seed {attempt + 1}")
    except WheelMissingError as error:
        fail(Exit.USAGE, str(error))
    except (DrillError, StackError) as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines())
    _show(played.report, played.timeline, html, output)


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="What `drill run -o json` printed.")],
    html: Html = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a saved report again. Exit as the drill did: 0 if it passed, 5 if it failed, 6 if it proves nothing."""
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
        fail(Exit.USAGE, f'{play.name} is not played with --engine "{engine}"; it is with {known}')
    return engine


def _check_writable(html: Path) -> None:
    """Before the drill: it takes a minute, and would be played for nothing."""
    if not html.parent.is_dir():
        fail(Exit.USAGE, f"--html: {html.parent} is no directory; make it first, or write elsewhere")
    if html.is_dir() or not os.access(html if html.exists() else html.parent, os.W_OK):
        fail(Exit.USAGE, f"--html: {html} cannot be written; name a file in a directory of yours")


def _show(shown: DrillReport, timeline: DrillTimeline | None, html: Path | None, output: Output) -> None:
    if output is Output.json:
        print_json(as_saved(shown, timeline))
    else:
        print_report(shown)
    if html is not None:
        try:
            html.write_text(page(shown, timeline))
        except OSError as error:
            fail(Exit.USAGE, f"{html}: it cannot be written: {error.strerror}")
        stderr.print(f"written to {escape(str(html))}")
    if not shown.passed:
        raise typer.Exit(Exit.INTEGRITY if shown.failed else Exit.TIMED_OUT)
