"""The disruption controller: maintains the status of every PodDisruptionBudget, which decides about evictions.

A budget is examined when it, a pod of its namespace, or a set there changes. Pods are indexed only in namespaces
with a budget: in most namespaces, which have none, a pod's change costs one failed lookup.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from volsched.kube.manifest import Manifest, spec, status, uid
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.fold import living, manifest_of
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import rfc3339
from volsched.runtime.world import World
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.disruption_budgets import BUDGET, budget_selector, budget_status, is_covered
from volsched.workloads.rules.ownership import Owner

BATCH = 256
PREFIX = "disruptionbudget/"
COUNTED = ("pod/", "statefulset/")


@dataclass(slots=True)
class DisruptionBudgets:
    database: Database
    world: World
    owner: str
    _agenda: Agenda = field(default_factory=Agenda)
    _budgets: dict[str, dict[str, None]] = field(default_factory=dict)
    """Namespace → its budgets, as streams."""
    _pods: dict[str, dict[str, None]] = field(default_factory=dict)
    """Namespace with a budget → its pods, as streams."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        for stream in streams:
            if stream.startswith(PREFIX):
                self._update_budget(stream)
            elif self._budgets and stream.startswith(COUNTED):
                namespace = stream.split("/", 2)[1]
                if namespace in self._budgets:
                    self._agenda.add(self._budgets[namespace])
                    self._note_pod(namespace, stream)

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as budgets:
            # A refusal means that the budget has changed: the log has the change, and it is examined again.
            execute(self.database, list(self._commands(budgets, now)), now=now)
        return len(budgets)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_budget(self, stream: str) -> None:
        namespace = stream.split("/", 2)[1]
        if living(self.world.states, stream) is not None:
            if namespace not in self._budgets:
                prefix = f"pod/{namespace}/"
                self._pods[namespace] = dict.fromkeys(it for it in self.world.states if it.startswith(prefix))
            self._budgets.setdefault(namespace, {})[stream] = None
            self._agenda.add((stream,))
        elif namespace in self._budgets:
            self._budgets[namespace].pop(stream, None)
            if not self._budgets[namespace]:
                del self._budgets[namespace], self._pods[namespace]

    def _note_pod(self, namespace: str, stream: str) -> None:
        if not stream.startswith("pod/"):
            return
        if living(self.world.states, stream) is None:
            self._pods[namespace].pop(stream, None)
        else:
            self._pods[namespace][stream] = None

    def _commands(self, budgets: Iterable[str], now: int) -> Iterator[Command]:
        for stream in budgets:
            state = living(self.world.states, stream)
            if state is None or state.manifest is None:
                continue
            told = budget_status(state.manifest, self._covered(stream, state.manifest), self._scale, rfc3339(now))
            if told != status(state.manifest):
                author, wanted = door.controller(self.owner, now), {**state.manifest, "status": told}
                yield door.update(BUDGET, wanted, author, expected=state, status=True).command

    def _covered(self, stream: str, budget: Manifest) -> Iterator[Manifest]:
        selector = budget_selector(budget)
        for pod in self._pods.get(stream.split("/", 2)[1], ()):
            manifest = manifest_of(self.world.states, pod)
            if manifest is not None and is_covered(selector, manifest):
                yield manifest

    def _scale(self, controller: Owner) -> int | None:
        found = manifest_of(self.world.states, controller.stream) if controller.kind == "StatefulSet" else None
        return int(spec(found).get("replicas", 1)) if found is not None and uid(found) == controller.uid else None
