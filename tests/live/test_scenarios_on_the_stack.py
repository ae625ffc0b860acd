"""A sample of the scenarios on PostgreSQL, Redis and Celery, each service a process; the rest in `make drills`."""

import time
from pathlib import Path

import httpx
import pytest

from tests.stack.local_stacks import local_stack
from tests.support.extent import FULL
from tests.support.patience import HANG_SECONDS, PATIENCE_SECONDS
from volsched.cli.remote.server import RemoteServer
from volsched.lab.cli.conform import RealPace
from volsched.lab.conformance.live_player import Player
from volsched.lab.conformance.live_scenario import judged, read_scenario, scenario_files

SAMPLE = ("static-two-claims", "reclaim-retain-immediate", "ext-mixed", "sts-parallel", "limit-wffc-static")


def test_they_end_as_on_a_real_control_plane(passable_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios = [read_scenario(file) for file in scenario_files([Path(__file__).parent / "scenarios"])]
    sample = [it for it in scenarios if FULL or it.name.partition("-")[2] in SAMPLE]
    assert FULL or len(sample) == len(SAMPLE)
    with local_stack(passable_path / "stack", controller=("--without", "node-agent")) as stack:
        server = RemoteServer(url=stack.urls["api"])
        began, failed = time.monotonic(), {}
        for number, scenario in enumerate(sample, 1):
            outcome = Player(server, RealPace(), scenario, PATIENCE_SECONDS).play()
            verdict = judged(scenario, outcome, races=True)
            if verdict.deviations:
                failed[scenario.name] = verdict.deviations
            if FULL:
                with capsys.disabled():
                    minutes = (time.monotonic() - began) / 60
                    told = f"differs: {verdict.deviations}" if verdict.deviations else "equal"
                    print(f"{number}/{len(sample)} after {minutes:.1f} min: {scenario.name} {told}", flush=True)
        # The API of a stack serves the console and its map as well.
        page = httpx.get(f"{stack.urls['api']}/", headers={"accept": "text/html"}, follow_redirects=True)
        assert (page.status_code, page.url.path) == (200, "/ui/")
        drawn = (
            httpx.get(f"{stack.urls['api']}/apis/volsched.io/v1/map", timeout=HANG_SECONDS)
            .raise_for_status()
            .json()
        )
        assert drawn["kind"] == "VolumeMap"
    assert failed == {}
