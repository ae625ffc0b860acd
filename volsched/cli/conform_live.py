"""`volsched conform --live`: does a server end scenarios as a real control plane did?"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.progress import track

from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.cli.remote.choice import chosen_server
from volsched.cli.remote.server import Server
from volsched.drills.live_player import Player, UnplayableError
from volsched.drills.live_scenario import Scenario, ScenarioError, dump_scenario, read_scenario, scenario_files
from volsched.drills.live_snapshot import differences

LOOK_SECONDS = 0.1


class RealPace:
    """Time as it passes."""

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() >= end:
                return False
            time.sleep(LOOK_SECONDS)
        return True


@dataclass(frozen=True, slots=True)
class Verdict:
    scenario: Scenario
    differences: list[tuple[str, Any, Any]]
    wanted: list[tuple[str, Any, Any]]
    """Differences that the scenario says we mean."""


def conform_live(paths: list[Path], *, show: int, record: Path | None) -> None:
    files = scenario_files(paths)
    if not files:
        fail(
            Exit.USAGE, f"{', '.join(map(str, paths))} holds no scenarios; give .json files or a directory of them"
        )
    try:
        scenarios = [read_scenario(file) for file in files]
    except ScenarioError as error:
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
            outcome = _play(scenario, server)
        except UnplayableError as error:
            fail(Exit.FAILURE, f"{scenario.name}: {error}")
        if record is not None:
            _write(record, scenario.model_copy(update={"real": outcome}))
            continue
        verdict = judged(scenario, outcome)
        verdicts.append(verdict)
        _show(verdict, show)
    if record is not None:
        stdout.print(f"{len(scenarios)} recorded in {escape(str(record))}")
        return
    failed = sum(bool(it.differences) for it in verdicts)
    stdout.print(f"{len(verdicts) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(Exit.FAILURE)


def judged(scenario: Scenario, outcome: dict[str, Any]) -> Verdict:
    meant = {f"snaps.{it.snap}.{it.path}" for it in scenario.differs}
    found = list(differences(scenario.real, outcome))
    return Verdict(
        scenario,
        [it for it in found if not any(_within(it[0], path) for path in meant)],
        [it for it in found if any(_within(it[0], path) for path in meant)],
    )


def _within(path: str, wanted: str) -> bool:
    return path == wanted or path.startswith(f"{wanted}.")


def _play(scenario: Scenario, server: Server | None) -> dict[str, Any]:
    if server is not None:
        return Player(server, RealPace(), scenario).play().as_json()
    try:
        # Only this needs what the extra brings.
        from volsched.drills.live_system import played_system
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    with ExitStack() as stack:
        system = stack.enter_context(played_system())
        return Player(Server(url=system.url), system, scenario).play().as_json()


def _write(directory: Path, scenario: Scenario) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{scenario.name}.json").write_text(dump_scenario(scenario))
    except OSError as error:
        fail(Exit.FAILURE, f"{directory} cannot be written: {error.strerror or error}")


def _show(verdict: Verdict, show: int) -> None:
    name = escape(verdict.scenario.name)
    meant = f", {len(verdict.wanted)} differences are meant" if verdict.wanted else ""
    stdout.print(f"{'[red]differs[/]' if verdict.differences else 'equal  '} {name}{meant}")
    for path, expected, got in verdict.differences[:show]:
        stdout.print(f"  {escape(path)}")
        stdout.print(f"    expected {escape(json.dumps(expected))}")
        stdout.print(f"    got      {escape(json.dumps(got))}")
