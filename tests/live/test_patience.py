"""With patience a look waits while news keep coming, and not for what we mean to differ in."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volsched.cli.remote.server import RemoteServer
from volsched.lab.conformance.live_player import Player
from volsched.lab.conformance.live_scenario import LiveOutcome, LiveScenario, judged, read_scenario
from volsched.lab.conformance.live_system import BEGINS, PlayedSystem, played_system
from volsched.log.database import Database
from volsched.runtime.clock import SECOND

SCENARIOS = Path(__file__).parent / "scenarios"
VOLUMES = ("p1", "p2", "p3")
EVERY_SECONDS = 40


@dataclass(slots=True)
class SlowUser:
    """Time as it passes for the system, and somebody who makes another volume now and then."""

    system: PlayedSystem
    names: list[str] = field(default_factory=lambda: list(VOLUMES))
    _last: int = BEGINS

    def rest(self, seconds: float) -> None:
        self.system.rest(seconds)

    def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        end = self.system.now + seconds * SECOND
        while self.system.now < end:
            if self.system.until(reached, 1):
                return True
            if self.names and self.system.now >= self._last + EVERY_SECONDS * SECOND:
                self._last = self.system.now
                RemoteServer(url=self.system.url).answer(
                    "POST", "/api/v1/persistentvolumes", body=volume(self.names.pop(0))
                )
        return reached()


def volume(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
        },
    }


def slow_outcome(database: Database, patience: float) -> set[str]:
    """The volumes that a look shows whose expectation are all of them."""
    with played_system(database) as system:
        made = LiveScenario(name="1-slow", steps=[("apply", list(map(volume, VOLUMES))), ("snap", "end", 5)])
        real = Player(RemoteServer(url=system.url), system, made).play().as_json()
        slow = LiveScenario(name="1-slow", steps=[("snap", "end", 5)], real=real)
        user = SlowUser(system, _last=system.now)
        outcome = Player(RemoteServer(url=system.url), user, slow, patience).play()
    return set(outcome.snaps["end"]["pvs"])


def test_it_lasts_as_long_as_news_keep_coming(sqlite: Database) -> None:
    assert slow_outcome(sqlite, patience=1.5 * EVERY_SECONDS) == set(VOLUMES)


def test_it_ends_where_nothing_new_comes(sqlite: Database) -> None:
    assert slow_outcome(sqlite, patience=0.5 * EVERY_SECONDS) == set()


def test_what_we_mean_to_differ_in_is_not_waited_for(sqlite: Database) -> None:
    scenario = read_scenario(SCENARIOS / "118-zonal-labels-only.json")
    assert scenario.differs
    with played_system(sqlite) as system:
        outcome = Player(RemoteServer(url=system.url), system, scenario, patience=3_600).play()
        took = (system.now - BEGINS) / SECOND
    verdict = judged(scenario, outcome)
    assert (verdict.deviations, bool(verdict.intended)) == ((), True)
    assert took < 3_600


def test_where_processes_race_a_pod_may_have_been_told_to_wait_for_a_claim_that_is_bound_by_now() -> None:
    scenario = read_scenario(SCENARIOS / "107-static-no-class.json")
    assert scenario.real is not None
    told = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    early = ["Pod", "a", "Warning", "FailedScheduling", told]
    other = [*early[:4], "0/1 nodes are available: 1 node(s) had untolerated taint(s). not found"]

    def deviations(event: list[str], *, node: str | None = "n1", races: bool = True) -> int:
        real = deepcopy(scenario.real)
        assert real is not None
        look = real["snaps"]["end"]
        look["events"].append(event)
        expected = scenario.model_copy(update={"real": deepcopy(real)})
        assert expected.real is not None
        expected.real["snaps"]["end"]["events"].remove(event)
        for snaps in (look, expected.real["snaps"]["end"]):
            snaps["pods"]["a"]["node"] = node
        return len(judged(expected, LiveOutcome(**real), races=races).deviations)

    assert deviations(early) == 0
    assert deviations(early, races=False) == 1
    assert deviations(early, node=None) == 1
    assert deviations(other) == 1
