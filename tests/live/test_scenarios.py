"""Every scenario ends on our system as it ended on a real control plane: objects, conditions, refusals, events."""

from pathlib import Path

import pytest

from volsched.cli.remote.server import RemoteServer
from volsched.lab.conformance.live_player import Player
from volsched.lab.conformance.live_scenario import LiveScenario, judged, read_scenario, scenario_files
from volsched.lab.conformance.live_system import played_system
from volsched.log.database import Database

SCENARIOS = [read_scenario(file) for file in scenario_files([Path(__file__).parent / "scenarios"])]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_it_ends_as_on_a_real_control_plane(scenario: LiveScenario, sqlite: Database) -> None:
    """Where we mean to differ we still do: an intended difference that is none any more is to be taken out."""
    with played_system(sqlite) as system:
        outcome = Player(RemoteServer(url=system.url), system, scenario).play()
    verdict = judged(scenario, outcome)
    assert verdict.deviations == ()
    assert bool(verdict.intended) is bool(scenario.differs)
