"""`volsched conform --live`: does a server end scenarios as a real control plane did?"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.markup import escape
from rich.progress import track

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.cli.remote.server import RemoteServer
from volsched.cli.remote.server_choice import chosen_server
from volsched.lab.conformance.live_player import Player, UnplayableError
from volsched.lab.conformance.live_scenario import (
    LiveOutcome,
    LiveScenario,
    LiveScenarioError,
    dump_scenario,
    read_scenario,
    scenario_files,
)
from volsched.lab.conformance.live_verdict import LiveVerdict, judged
from volsched.runtime.patience import Patience

LOOK_SECONDS = 0.1


class RealPace:
    """Time as it passes."""

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
        _show(verdict, show)
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
        # Only this needs what the extra brings.
        from volsched.lab.conformance.live_system import played_system
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    with ExitStack() as stack:
        system = stack.enter_context(played_system())
        return Player(RemoteServer(url=system.url), system, scenario).play()


def _write(directory: Path, scenario: LiveScenario) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{scenario.name}.json").write_text(dump_scenario(scenario))
    except OSError as error:
        fail(Exit.FAILURE, f"{directory} cannot be written: {error.strerror or error}")


def _show(verdict: LiveVerdict, show: int) -> None:
    name = escape(verdict.scenario.name)
    intended = f" (differs as intended in {len(verdict.intended)})" if verdict.intended else ""
    stdout.print(f"{'[red]differs[/]' if verdict.deviations else 'equal  '} {name}{intended}")
    for deviation in verdict.deviations[:show]:
        stdout.print(f"  {escape(deviation.path)}")
        stdout.print(f"    expected {escape(json.dumps(deviation.expected))}")
        stdout.print(f"    got      {escape(json.dumps(deviation.got))}")
