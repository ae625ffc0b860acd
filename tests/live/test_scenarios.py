"""Every scenario ends on our system as it ended on a real control plane: objects, conditions, refusals, events."""

from pathlib import Path

import pytest

from volsched.cli.remote.server import RemoteServer
from volsched.lab.conformance.live_player import Player
from volsched.lab.conformance.live_scenario import LiveScenario, read_scenario, scenario_files
from volsched.lab.conformance.live_system import played_system
from volsched.lab.conformance.live_verdict import judged
from volsched.log.database import Database

SCENARIOS = [read_scenario(file) for file in scenario_files([Path(__file__).parent / "scenarios"])]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_it_ends_as_on_a_real_control_plane(scenario: LiveScenario, sqlite: Database) -> None:
    with played_system(sqlite) as system:
        outcome = Player(RemoteServer(url=system.url), system, scenario).play()
    assert judged(scenario, outcome).deviations == ()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_every_intended_difference_is_still_one(scenario: LiveScenario, sqlite: Database) -> None:
    if not scenario.differs:
        return
    with played_system(sqlite) as system:
        outcome = Player(RemoteServer(url=system.url), system, scenario).play()
    assert judged(scenario, outcome).intended
