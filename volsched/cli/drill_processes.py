"""`volsched drill run NAME` with real processes, and `volsched drill report`: what was saved, shown again."""

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr
from volsched.cli.drill_report import print_report
from volsched.drills.html_report import page
from volsched.drills.process_scenario import ENGINES, Play, play_of
from volsched.drills.report import Report, SavedError, as_saved, read_saved
from volsched.drills.scenario import Scenario, ScenarioError
from volsched.drills.timeline import Timeline
from volsched.stack.wheels import INSTALL, MissingError

REPORT_EXAMPLES = """**Examples**

`volsched drill run kill-all -o json > kill-all.json` then `volsched drill report kill-all.json`

`volsched drill report kill-all.json --html kill-all.html`
"""
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


def run_processes(scenario: Scenario, engine: str | None, seed: int, html: Path | None, output: Output) -> None:
    """Exit 0 where everything holds, 5 where not, 6 where the drill could not be played to its end."""
    try:
        play = play_of(scenario)
    except ScenarioError as error:
        fail(Exit.USAGE, f"{scenario.name}: {error}")
    chosen = _engine(play, engine)
    try:
        from volsched.drills.process_drill import DrillError
        from volsched.drills.process_drill import play as perform
        from volsched.stack.handle import StackError
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: {INSTALL}")
    # Ended from outside, as by `timeout`, it ends its stack first, as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        played = perform(play, engine=chosen, seed=seed, told=lambda it: stderr.print(escape(it)))
    except MissingError as error:
        fail(Exit.USAGE, str(error))
    except (DrillError, StackError) as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines())
    _show(played.report, played.timeline, html, output)


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="What `drill run -o json` printed.")],
    html: Html = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a saved report again. Exit as the drill did: 0 if nothing was violated, else 5."""
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


def _show(shown: Report, timeline: Timeline | None, html: Path | None, output: Output) -> None:
    if html is not None:
        try:
            html.write_text(page(shown, timeline))
        except OSError as error:
            fail(Exit.USAGE, f"{html}: it cannot be written: {error.strerror}")
        stderr.print(f"written to {escape(str(html))}")
    if output is Output.json:
        print_json(as_saved(shown, timeline))
    else:
        print_report(shown)
    if not shown.passed:
        raise typer.Exit(Exit.INTEGRITY)
