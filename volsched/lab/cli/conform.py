"""`volsched conform`: compares our answers, and outcomes of scenarios (`--live`), with those of the reference."""

import gzip
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.cli.remote.server import RemoteServer
from volsched.cli.remote.server_choice import chosen_server
from volsched.lab.conformance.live_player import Player, UnplayableError
from volsched.lab.conformance.live_scenario import (
    LiveOutcome,
    LiveScenario,
    LiveScenarioError,
    LiveVerdict,
    dump_scenario,
    judged,
    read_scenario,
    scenario_files,
)
from volsched.lab.conformance.vectors import VectorError, VectorOutcome, read_vectors, run_vector
from volsched.runtime.clock import Patience
from volsched.runtime.extras import missing

EXAMPLES = """
Examples:

volsched conform tests/lab/binder.jsonl.gz

volsched conform tests/lab/controller.jsonl.gz

volsched conform vectors.jsonl --show 20

volsched conform --live tests/live/scenarios

volsched --server https://HOST:6443 --ca-file ca.crt --token-file token conform --live scenario.json
"""


def conform(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Golden vectors, .jsonl or .jsonl.gz; or scenarios.")
    ],
    show: Annotated[int, typer.Option(help="How many failed vectors to show in full.", min=0)] = 5,
    live: Annotated[
        bool, typer.Option("--live", help="FILE is a live scenario, or a directory of them; play it on a server.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --live: record the outcome on this server."),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="With --live on a server: compare once all is as expected, or after SECONDS without change.",
        ),
    ] = None,
) -> None:
    """Run golden vectors under profile `parity`: of the volume binder, or of the PV controller.

    With `--live`, play scenarios (steps over the public API) and compare their outcomes with those on a real
    control plane: on the server of `--server`, which must be empty and is emptied again, or without one on a
    system of our own whose clock does not wait.

    Of the binder every field of every answer is compared; of the controller the objects at the end, its events and
    its calls of the volume plugin. The input of a vector shows its kind.

    Prints a table by category, the first differences, and `N passed, M failed, K skipped`. Only vectors on which
    the reference itself crashed are skipped. Exit 1 if any failed, 2 if the file cannot be read.
    """
    if live:
        # The other vectors need no server.

        conform_live(files, show=show, record=record, patience=patience)
        return
    if record is not None or patience is not None:
        fail(Exit.USAGE, "--record and --patience are for scenarios; give --live too")
    for file in files:
        _conform(file, show)


def _conform(file: Path, show: int) -> None:
    try:
        vectors = list(read_vectors(_lines(file)))
        outcomes = [
            run_vector(vector)
            for vector in track(vectors, "Running vectors", console=stderr, disable=not stderr.is_terminal)
        ]
    except VectorError as error:
        fail(Exit.USAGE, f"{file}: {error}")
    if not outcomes:
        fail(Exit.USAGE, f"{file} holds no vectors; give a file with one JSON object per line")
    stdout.print(_table(outcomes))
    failed = [outcome for outcome in outcomes if outcome.failed]
    for outcome in failed[:show]:
        _show_outcome(outcome)
    skipped = sum(outcome.skipped for outcome in outcomes)
    stdout.print(f"{len(outcomes) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped")
    if failed:
        raise typer.Exit(Exit.FAILURE)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        fail(Exit.USAGE, f"{path} cannot be read: {why}; give a .jsonl or .jsonl.gz file")


def _table(outcomes: list[VectorOutcome]) -> Table:
    table = Table("category", box=None, pad_edge=False)
    for name in ("passed", "failed", "skipped"):
        table.add_column(name, justify="right")
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        verdict = "failed" if outcome.failed else "skipped" if outcome.skipped else "passed"
        counts.setdefault(outcome.vector.category, Counter())[verdict] += 1
    for category in sorted(counts):
        count = counts[category]
        table.add_row(category, str(count["passed"]), str(count["failed"]), str(count["skipped"]))
    return table


def _show_outcome(outcome: VectorOutcome) -> None:
    stdout.print(f"\n[bold]{escape(outcome.vector.id)}[/] ({escape(outcome.vector.category)})")
    for difference in outcome.differences:
        stdout.print(f"  {escape(difference.path)}")
        stdout.print(f"    expected {escape(json.dumps(difference.expected))}")
        stdout.print(f"    got      {escape(json.dumps(difference.got))}")


# `volsched conform --live`: compares the outcomes of scenarios with those on a real control plane.

LOOK_SECONDS = 0.1


class RealPace:
    """Real time."""

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        patience = Patience(seconds)
        while not reached():
            if patience.is_over():
                return False
            time.sleep(LOOK_SECONDS)
        return True


def conform_live(paths: list[Path], *, show: int, record: Path | None, patience: float | None) -> None:
    files = scenario_files(paths)
    if not files:
        fail(
            Exit.USAGE, f"{', '.join(map(str, paths))} holds no scenarios; give .json files or a directory of them"
        )
    try:
        scenarios = [read_scenario(file) for file in files]
    except LiveScenarioError as error:
        fail(Exit.USAGE, str(error))
    unplayed = [it.name for it in scenarios if it.real is None]
    if unplayed and record is None:
        fail(
            Exit.USAGE,
            f"{unplayed[0]} has no outcome of a real control plane to compare with; play it on one with --record",
        )
    server = chosen_server()
    verdicts = []
    for scenario in track(scenarios, "Playing", console=stderr, disable=not stderr.is_terminal):
        try:
            outcome = _play(scenario, server, patience)
        except UnplayableError as error:
            fail(Exit.FAILURE, f"{scenario.name}: {error}")
        if record is not None:
            _write(record, scenario.model_copy(update={"real": outcome.as_json()}))
            continue
        verdict = judged(scenario, outcome, races=server is not None)
        verdicts.append(verdict)
        _show_verdict(verdict, show)
    if record is not None:
        stdout.print(f"{len(scenarios)} recorded in {escape(str(record))}")
        return
    failed = sum(bool(it.deviations) for it in verdicts)
    stdout.print(f"{len(verdicts) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(Exit.FAILURE)


def _play(scenario: LiveScenario, server: RemoteServer | None, patience: float | None) -> LiveOutcome:
    if server is not None:
        return Player(server, RealPace(), scenario, patience).play()
    try:
        # Only this needs the packages of the extra.
        from volsched.lab.conformance.live_system import played_system
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "server"))
    with ExitStack() as stack:
        system = stack.enter_context(played_system())
        return Player(RemoteServer(url=system.url), system, scenario).play()


def _write(directory: Path, scenario: LiveScenario) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{scenario.name}.json").write_text(dump_scenario(scenario))
    except OSError as error:
        fail(Exit.FAILURE, f"{directory} cannot be written: {error.strerror or error}")


def _show_verdict(verdict: LiveVerdict, show: int) -> None:
    name = escape(verdict.scenario.name)
    intended = f" (differs as intended in {len(verdict.intended)})" if verdict.intended else ""
    stdout.print(f"{'[red]differs[/]' if verdict.deviations else 'equal  '} {name}{intended}")
    for deviation in verdict.deviations[:show]:
        stdout.print(f"  {escape(deviation.path)}")
        stdout.print(f"    expected {escape(json.dumps(deviation.expected))}")
        stdout.print(f"    got      {escape(json.dumps(deviation.got))}")
