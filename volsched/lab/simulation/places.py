"""Where the objects of a simulated run live: in our own log, or in a foreign cluster that others write too."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from volsched.cluster.foreign_server import ABLE, KUBERNETES, ForeignApi
from volsched.cluster.port import ClusterError
from volsched.cluster.simulated import Call, ClusterFaults, Fate, SimulatedCluster
from volsched.lab.simulation.actors import ForeignController, ForeignProvisioner, Others
from volsched.lab.simulation.schedule import Schedule, ScheduleChoice
from volsched.log.database import Database
from volsched.runtime.clock import Clock, rfc3339
from volsched.runtime.system import local_cluster

PLAIN = "plain"
"""A choice that says what the foreign cluster is: one that can do no more than a Kubernetes of today."""


@dataclass(slots=True)
class SimulatedPlace:
    others: Others
    api: ForeignApi | None = None
    line: SimulatedCluster | None = None
    theirs: set[int] = field(default_factory=set)
    """The versions of a foreign cluster that others wrote."""
    _controller: ForeignController | None = None
    _provisioner: ForeignProvisioner | None = None

    @property
    def version(self) -> int:
        return 0 if self.api is None else int(self.api.head)

    def write(self, write: Callable[[], object]) -> str:
        """A write by others; what they are refused is theirs to bear."""
        before = self.version
        try:
            write()
        except ClusterError as error:
            return f"refused: {error}"
        finally:
            self.theirs.update(range(before + 1, self.version + 1))
        return "done"

    def step_theirs(self, choice: ScheduleChoice) -> None:
        """One of a foreign cluster's own controllers, or half of it."""
        half = choice.options.get("half")
        if self._controller is not None and choice.who == "pv-controller":
            self._controller.step(begins=half != "second", finishes=half != "first")
        elif self._provisioner is not None:
            self._provisioner.step(finishes=half != "first")


def place_of(
    schedule: Schedule,
    database: Database,
    clock: Clock,
    new_id: Callable[[], str],
    fate: Callable[[Call], Fate | None],
) -> SimulatedPlace:
    if schedule.where == "local":
        return SimulatedPlace(Others(local_cluster(database, clock=clock, new_uid=new_id)))
    able = all(choice.verb != PLAIN for choice in schedule.choices)
    api = ForeignApi(now_text=lambda: rfc3339(clock()), capabilities=ABLE if able else KUBERNETES)
    line = SimulatedCluster(api, Random(0), ClusterFaults(slow_for=None), before=fate)
    return SimulatedPlace(Others(api), api, line, set(), ForeignController(api), ForeignProvisioner(api))
