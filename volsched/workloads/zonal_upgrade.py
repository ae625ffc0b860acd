"""The zonal upgrade of volumes that exist: every one at the start, and whichever is made or changed.

Whatever comes in through `apply` or the cluster's port is converted when it is made (`core.zonal_upgrade.admit`).
This finds the rest, and says what is wrong with labels that cannot be converted.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from volsched.kube.workloads import Node
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.object_states import manifest_of
from volsched.log.transaction import execute
from volsched.runtime.clock import rfc3339
from volsched.runtime.world import World
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.zonal_upgrade import ZonalReport, convert, has_zone_labels, is_settled, labelled_node
from volsched.workloads.rules.zone_affinity import ZonalUpgrade

BATCH = 256


@dataclass(slots=True)
class ZonalUpgrader:
    database: Database
    world: World
    owner: str
    report: ZonalReport = field(default_factory=ZonalReport)
    """What was done since the start of this process."""
    _agenda: Agenda = field(default_factory=Agenda)
    _nodes: dict[str, None] = field(default_factory=dict)

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if stream.startswith("volume/"):
                manifest = manifest_of(states, stream)
                if manifest is not None and has_zone_labels(manifest):
                    self._agenda.add((stream,))
            elif stream.startswith("node/"):
                if stream in states:
                    self._nodes[stream] = None
                else:
                    self._nodes.pop(stream, None)

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as taken:
            wanted = list(self._wanted(taken, now))
            outcomes = execute(self.database, [command for _, command in wanted], now=now)
        for (upgrade, _), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Done) and outcome.events:
                self.report.count(upgrade)
        return len(taken)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _wanted(self, volumes: Iterable[str], now: int) -> Iterator[tuple[ZonalUpgrade, Command]]:
        unsettled = [stream for stream in volumes if not is_settled(stream, self.world.states)]
        if not unsettled:
            # Nodes are walked for those only that may be converted.
            return
        nodes = [labelled_node(manifest_of(self.world.states, stream) or {}) for stream in self._nodes]
        for stream in unsettled:
            upgrade, events = convert(stream, self.world.states, nodes, now=rfc3339(now))
            if events:
                streams = (stream, *(event.stream for event in events))
                yield upgrade, self._command(stream, streams, nodes, now)

    def _command(self, stream: str, streams: Iterable[str], nodes: Collection[Node], now: int) -> Command:
        """Decided on the volume as it is then: that its phase has changed since must not leave it unconverted."""

        def decide(states: States) -> Decision:
            return Decision(events=convert(stream, states, nodes, now=rfc3339(now))[1])

        return Command(actor=self.owner, streams=tuple(dict.fromkeys(streams)), decide=decide)
