"""Where the extender's questions are decided: the scheduler's picture of the world, and the rules on it.

Called in one thread at a time. Of a filter nothing is kept until bind comes but whether the pod that it showed
is of this API (`strangers`). The decision is made again on what is there by then, for one node and in less than a
millisecond, so that none can be out of date.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.api.extender.foreign_pods import Strangers
from volsched.api.extender.messages import Assignment, Preemption, Sifted, Victims
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.kube.manifest import spec
from volsched.kube.workloads import Pod
from volsched.log.commands import Command, ConflictError, RejectedError
from volsched.log.database import Database
from volsched.log.events.fold import BindingState
from volsched.log.events.object_states import living
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import Now
from volsched.log.reads.tail import read_head
from volsched.runtime.clock import SECOND, rfc3339
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index.per_node import RollCall
from volsched.scheduling.planner import Planned, decider, plan_command, plan_for
from volsched.scheduling.pod_reservations import confirming
from volsched.scheduling.rules.assume import assume_pod_volumes
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.cycle import VOLUME_BINDING, Attempt
from volsched.scheduling.rules.node_avoidance import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.status import SUCCESS, AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import not_ready

TRIES = 5
"""How often a plan is made again because somebody else was faster."""
NO_UID = 'pod "{pod}": PodUID is missing, and a pod of another cluster may have that name; say which pod is meant'
STRANGER = (
    'pod "{pod}" lives elsewhere: this API never had it at resourceVersion {version}. Bind acts on pods of this '
    "API; let kube-scheduler be a client of it (its kubeconfig), or leave bindVerb out"
)
UNKNOWN_NODE = 'volsched knows no node "{name}"'
T = TypeVar("T")


class BindError(Exception):
    """The pod cannot be bound to the node; the message says why."""


@dataclass(frozen=True, slots=True)
class ExtenderPlacement:
    """The pod is on its node."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A binding will bring the pod to its node, unless it fails."""

    binding: str
    deadline: int


@dataclass(slots=True)
class Desk:
    database: Database
    configuration: Configuration
    new_id: Callable[[], str]
    submit: Callable[[Command], object]
    """Carries a command out, and answers once that is durable; raises what is against it."""
    picture: Picture = field(init=False)
    strangers: Strangers = field(init=False)

    def __post_init__(self) -> None:
        self.picture = Picture.on(self.database, self.configuration)
        self.strangers = Strangers(self.database)

    # --- questions --------------------------------------------------------------------------------------

    def sift(self, pod: Pod, names: tuple[str, ...], now: int) -> Sifted:
        called = self._call(pod, names, now)
        if called.status.code is Code.ERROR:
            return Sifted(error=_told(called.status))
        if not called.status.passed:
            # Refused before any node was looked at: what is wrong is the pod's, and no eviction mends it.
            return Sifted(unresolvable=dict.fromkeys(names, _told(called.status)))
        fitting: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in names:
            verdict = called.verdicts.get(name)
            if verdict is None:
                unresolvable[name] = UNKNOWN_NODE.format(name=name)
            elif verdict.status.code is Code.ERROR:
                return Sifted(error=_told(verdict.status))
            elif verdict.status.passed:
                fitting.append(name)
            else:
                kept = failed if verdict.status.code is Code.UNSCHEDULABLE else unresolvable
                kept[name] = _told(verdict.status)
        return Sifted(frozenset(fitting), failed, unresolvable)

    def scores(self, pod: Pod, names: tuple[str, ...], now: int) -> dict[str, int]:
        """By node, 0..100, for its volumes: all else is scored by kube-scheduler itself.

        Nothing for those where bindings of the pod failed: more cannot be said against them in this protocol.
        """
        called = self._call(pod, names, now)
        _raise_errors(called)
        demerits, nodes = self.picture.demerits(pod, now), self.picture.index.snapshot.nodes
        return {
            name: 0 if demerits and demerits.of(nodes[name]) else it.scores.get(VOLUME_BINDING, 0)
            for name, it in called.verdicts.items()
        }

    def preemptible(self, asked: Preemption, now: int) -> dict[str, Victims]:
        """The nodes on which it may help the pod that others go."""
        sifted = self.sift(asked.pod, tuple(asked.victims), now)
        if sifted.error:
            raise BindError(sifted.error)
        # One without victims is nothing to be preempted on, and kube-scheduler takes it for an error.
        return {node: it for node, it in asked.victims.items() if it.pods and node not in sifted.unresolvable}

    def _call(self, pod: Pod, names: tuple[str, ...], now: int) -> RollCall:
        self.picture.catch_up(now)
        self.strangers.meet(pod, self.picture.world.states)
        return self.picture.index.roll_call(pod, names, avoid=self._avoid(pod, now))

    def _avoid(self, pod: Pod, now: int) -> frozenset[str]:
        since = rfc3339(now - AVOID_SECONDS * SECOND)
        return nodes_to_avoid(pod.key, self.picture.world.states, since=since)

    # --- binding ----------------------------------------------------------------------------------------

    def bind(self, asked: Assignment, *, actor: str, now: int) -> ExtenderPlacement | Underway:
        """Plan the binding, or find it planned or done already; BindError where it cannot be."""
        late: tuple[type[Exception], ...] = (ConflictError, *self.database.refusals)
        for _ in range(TRIES):
            self.picture.catch_up(now)
            stands = self._stands(asked)
            if isinstance(stands, Underway) and self._is_reserved(stands.binding):
                return self._confirm(stands.binding, actor=actor, now=now)
            if stands is not None:
                return stands
            planned = self._plan(asked, now)
            try:
                self.submit(plan_command(planned, actor=actor, decider=decider(actor)))
            except Exception as error:
                # What was only imagined is taken back. If somebody was faster, the next decision sees why.
                self.picture.update(planned.plan.streams)
                if isinstance(error, late):
                    continue
                if isinstance(error, RejectedError):
                    raise BindError(str(error)) from None
                raise
            else:
                return Underway(planned.plan.binding, planned.plan.deadline)
            finally:
                self.picture.wake_up()
        raise BindError(f'pod "{asked.pod}": the world changed {TRIES} times while it was bound; bind it again')

    def stands(self, asked: Assignment, binding: str, *, now: int) -> ExtenderPlacement | Underway:
        """How a binding that was planned has come along; BindError where it has failed."""
        self.picture.catch_up(now)
        found = self._stands(asked)
        if found is not None:
            return found
        with self.database.read() as connection:
            ended = Now(connection, read_head(connection).position).one(BINDING, binding)
        why = ended.reason if isinstance(ended, BindingState) else None
        raise BindError(f'pod "{asked.pod}": binding {binding} was rolled back: {why or "its pod is gone"}')

    def _stands(self, asked: Assignment) -> ExtenderPlacement | Underway | None:
        """None: the pod is there, and nobody has a node for it yet."""
        held = living(self.picture.world.states, f"pod/{asked.pod}")
        if held is None or held.manifest is None:
            raise BindError(f'pod "{asked.pod}" not found; bind acts on pods of this API')
        metadata = held.manifest["metadata"]
        if not asked.uid:
            raise BindError(NO_UID.format(pod=asked.pod))
        if metadata.get("uid") != asked.uid:
            raise BindError(f'pod "{asked.pod}" has uid {metadata.get("uid")}, not {asked.uid}: it is another pod')
        if version := self.strangers.version_of(asked.uid):
            raise BindError(STRANGER.format(pod=asked.pod, version=version))
        node = spec(held.manifest).get("nodeName")
        if node:
            return self._agreed(asked, node, ExtenderPlacement(), "is on")
        binding = self.picture.planned.get(asked.pod)
        state = None if binding is None else self.picture.world.binding(binding)
        if binding is None or state is None:
            return None
        return self._agreed(asked, state.plan["node"], Underway(binding, state.plan["deadline"]), "is coming to")

    def _is_reserved(self, binding: str) -> bool:
        state = self.picture.world.binding(binding)
        return state is not None and state.state == Phase.RESERVED

    def _confirm(self, binding: str, *, actor: str, now: int) -> Underway:
        """What was held for the pod, on the very node, is what kube-scheduler asks for."""
        seconds = self.configuration.bind_timeout_seconds
        try:
            self.submit(confirming(self.database, binding, actor=actor, now=now, timeout_seconds=seconds))
        except GatedError as error:
            raise BindError(str(error)) from None
        return Underway(binding, now + seconds * SECOND)

    def _agreed(self, asked: Assignment, node: str, stands: T, how: str) -> T:
        if node != asked.node:
            raise BindError(f'pod "{asked.pod}" {how} node "{node}" already; it cannot go to "{asked.node}"')
        return stands

    def _plan(self, asked: Assignment, now: int) -> Planned:
        index = self.picture.index
        pod, node = index.snapshot.pods.get(asked.pod), index.snapshot.nodes.get(asked.node)
        if node is None:
            raise BindError(UNKNOWN_NODE.format(name=asked.node))
        if pod is None or pod.meta.being_deleted or pod.scheduling_gates:
            why = (
                "waits behind scheduling gates" if pod is not None and pod.scheduling_gates else "is being deleted"
            )
            raise BindError(f'pod "{asked.pod}" {why}')
        called = index.roll_call(pod, (node.name,), avoid=self._avoid(pod, now))
        _raise_errors(called)
        verdict = called.verdicts[node.name] if called.status.passed else None
        status = called.status if verdict is None else verdict.status
        if verdict is None or not status.passed:
            raise BindError(f'pod "{asked.pod}" cannot go to node "{node.name}": {_told(status)}')
        waits = not_ready(verdict.answer)
        if waits is not None:
            raise BindError(f'pod "{asked.pod}" cannot go to node "{node.name}" yet: {waits}')
        try:
            _, reserved = assume_pod_volumes(index.snapshot, pod, node, verdict.answer, profile=index.profile)
        except AttemptError as error:
            raise BindError(str(error)) from None
        return plan_for(
            pod,
            Attempt(status=SUCCESS, claims=called.claims, verdicts=(verdict,), chosen=verdict),
            reserved,
            binding=self.new_id(),
            picture=self.picture,
            now=now,
            timeout_seconds=self.configuration.bind_timeout_seconds,
        )


def _raise_errors(called: RollCall) -> None:
    for status in (called.status, *(it.status for it in called.verdicts.values())):
        if status.code is Code.ERROR:
            raise BindError(_told(status))


def _told(status: Status) -> str:
    return ", ".join(status.reasons)
