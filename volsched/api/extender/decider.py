"""The extender's decisions: the rules, applied to the scheduler's picture and the caller's pods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.api.extender.messages import Assignment, FilterAnswer, Preemption, Victims
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.kube.manifest import metadata, spec
from volsched.kube.workloads import Pod
from volsched.log.base import read_base
from volsched.log.commands import Command, ConflictError, RejectedError
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, States, living
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.tail import event
from volsched.runtime.clock import SECOND, rfc3339
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index.node_verdict import RollCall
from volsched.scheduling.planner import Planned, decider, plan_command, plan_for
from volsched.scheduling.pod_reservations import confirming
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.cycle import VOLUME_BINDING, Attempt
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.status import SUCCESS, AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import assume_pod_volumes, not_ready

# Pods of another cluster that have the name and uid of a pod of ours.
#
# An imported dump of another cluster keeps its uids, and so does a copy of a store. If the scheduler of that
# cluster calls us, its pods look like ours. Binding our pod would report success for its own, which would then
# never start. Only the version distinguishes them: that of our pod is a position at which this log has written it.

MOST = 10_000
"""Pods that are remembered; a caller of bind has sent the pod in a filter call a moment before."""


@dataclass(slots=True)
class ForeignPods:
    database: Database
    _versions: dict[str, str] = field(default_factory=dict)
    """Uid → a version that the pod of this API has never had."""

    def note(self, pod: Pod, states: States) -> None:
        """A pod as its scheduler knows it; `states` are current: the scheduler cannot know more than we do."""
        version = pod.meta.resource_version
        if not version or self._is_ours(pod, version, states):
            self._versions.pop(pod.meta.uid, None)
            return
        self._versions[pod.meta.uid] = version
        if len(self._versions) > MOST:
            del self._versions[next(iter(self._versions))]

    def version_of(self, uid: str) -> str | None:
        """The version that showed the pod to be foreign; None where nothing did."""
        return self._versions.get(uid)

    def _is_ours(self, pod: Pod, version: str, states: States) -> bool:
        stream = f"pod/{pod.key}"
        state = living(states, stream)
        if state is None or version in (str(state.rv), metadata(state.manifest or {}).get("resourceVersion")):
            # A mirrored pod has the version of its own cluster, and is bound there.
            return True
        if not version.isdecimal() or len(version) > 18:
            return False
        with self.database.read() as connection:
            written = event(connection, int(version))
            if written is None:
                return int(version) <= read_base(connection).position
            return written.stream == stream


# Called in one thread at a time. Of a filter call only one fact is kept until bind: whether the pod is of this API
# (`foreign_pods`). Bind decides again on the present state, for one node and in less than a millisecond, so no
# decision is out of date.

TRIES = 5
"""Attempts of a plan when other writers were faster."""
NO_UID = 'pod "{pod}": PodUID is missing, and a pod of another cluster may have that name; say which pod is meant'
FOREIGN_POD = (
    'pod "{pod}" lives elsewhere: this API never had it at resourceVersion {version}. Bind acts on pods of this '
    "API; let kube-scheduler be a client of it (its kubeconfig), or leave bindVerb out"
)
UNKNOWN_NODE = 'volsched knows no node "{name}"'
T = TypeVar("T")


class BindError(Exception):
    """The pod cannot be bound to the node; the message says why."""


class UnseenPodError(BindError):
    """No pod, or another one, has this name here; that of a followed cluster may not have arrived yet."""


@dataclass(frozen=True, slots=True)
class ExtenderPlacement:
    """The binding is done: the pod is on its node."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A binding will place the pod on its node, unless it fails."""

    binding: str
    deadline: int


@dataclass(slots=True)
class ExtenderDecider:
    database: Database
    configuration: Configuration
    new_id: Callable[[], str]
    submit: Callable[[Command], object]
    """Commits a command, and returns once it is durable; raises the refusal."""
    follows: bool = False
    """The pods are those of a followed cluster. Their uids identify them; their versions do not, because the
    caller may know an earlier or a later one than we do."""
    picture: Picture = field(init=False)
    foreign_pods: ForeignPods = field(init=False)

    def __post_init__(self) -> None:
        self.picture = Picture.on(self.database, self.configuration)
        self.foreign_pods = ForeignPods(self.database)

    # --- questions --------------------------------------------------------------------------------------

    def filter(self, pod: Pod, names: tuple[str, ...], now: int) -> FilterAnswer:
        roll_call = self._roll_call(pod, names, now)
        if roll_call.status.code is Code.ERROR:
            return FilterAnswer(error=_reasons(roll_call.status))
        if not roll_call.status.passed:
            # Refused before any node was examined: the fault is the pod's, and no eviction helps.
            return FilterAnswer(unresolvable=dict.fromkeys(names, _reasons(roll_call.status)))
        fitting: list[str] = []
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name in names:
            verdict = roll_call.verdicts.get(name)
            if verdict is None:
                unresolvable[name] = UNKNOWN_NODE.format(name=name)
            elif verdict.status.code is Code.ERROR:
                return FilterAnswer(error=_reasons(verdict.status))
            elif verdict.status.passed:
                fitting.append(name)
            else:
                reasons_by_node = failed if verdict.status.code is Code.UNSCHEDULABLE else unresolvable
                reasons_by_node[name] = _reasons(verdict.status)
        return FilterAnswer(frozenset(fitting), failed, unresolvable)

    def scores(self, pod: Pod, names: tuple[str, ...], now: int) -> dict[str, int]:
        """Node → 0..100 for the pod's volumes; kube-scheduler scores everything else itself.

        0 for nodes where bindings of the pod failed: the protocol has no lower score.
        """
        roll_call = self._roll_call(pod, names, now)
        _raise_errors(roll_call)
        demerits, nodes = self.picture.demerits(pod, now), self.picture.index.snapshot.nodes
        return {
            name: 0 if demerits and demerits.of(nodes[name]) else it.scores.get(VOLUME_BINDING, 0)
            for name, it in roll_call.verdicts.items()
        }

    def preemptible(self, preemption: Preemption, now: int) -> dict[str, Victims]:
        """The nodes on which evicting other pods may help the pod."""
        answer = self.filter(preemption.pod, tuple(preemption.victims), now)
        if answer.error:
            raise BindError(answer.error)
        # kube-scheduler takes a node without victims for an error.
        return {node: it for node, it in preemption.victims.items() if it.pods and node not in answer.unresolvable}

    def _roll_call(self, pod: Pod, names: tuple[str, ...], now: int) -> RollCall:
        self.picture.catch_up(now)
        if not self.follows:
            self.foreign_pods.note(pod, self.picture.world.states)
        return self.picture.index.roll_call(pod, names, avoid=self._avoid(pod, now))

    def _avoid(self, pod: Pod, now: int) -> frozenset[str]:
        since = rfc3339(now - AVOID_SECONDS * SECOND)
        return nodes_to_avoid(pod.key, self.picture.world.states, since=since)

    # --- binding ----------------------------------------------------------------------------------------

    def bind(self, assignment: Assignment, *, actor: str, now: int) -> ExtenderPlacement | Underway:
        """Plan the binding, unless it is planned or done already; BindError where it is impossible."""
        lost_race: tuple[type[Exception], ...] = (ConflictError, *self.database.refusals)
        for _ in range(TRIES):
            self.picture.catch_up(now)
            progress = self._progress_of(assignment)
            if isinstance(progress, Underway) and self._is_reserved(progress.binding):
                return self._confirm(progress.binding, actor=actor, now=now)
            if progress is not None:
                return progress
            planned = self._plan(assignment, now)
            try:
                self.submit(plan_command(planned, actor=actor, decider=decider(actor)))
            except Exception as error:
                # The assumption is undone. If another writer was faster, the next decision sees why.
                self.picture.update(planned.plan.streams)
                if isinstance(error, lost_race):
                    continue
                if isinstance(error, RejectedError):
                    raise BindError(str(error)) from None
                raise
            else:
                return Underway(planned.plan.binding, planned.plan.deadline)
            finally:
                self.picture.wake_up()
        raise BindError(f'pod "{assignment.pod}": the store changed {TRIES} times during its binding; retry')

    def progress(self, assignment: Assignment, binding: str, *, now: int) -> ExtenderPlacement | Underway:
        """The progress of a planned binding; BindError where it has failed."""
        self.picture.catch_up(now)
        progress = self._progress_of(assignment)
        if progress is not None:
            return progress
        with self.database.read() as connection:
            ended = view_at_head(connection).one(BINDING, binding)
        if isinstance(ended, BindingState) and ended.state == Phase.COMMITTED:
            # A real cluster has bound the pod; its watch shows us the node a moment later.
            return ExtenderPlacement()
        if isinstance(ended, BindingState) and ended.state != Phase.ROLLED_BACK:
            # Committed to the log since the picture was brought up to date.
            return Underway(binding, ended.plan["deadline"])
        why = ended.reason if isinstance(ended, BindingState) else None
        raise BindError(f'pod "{assignment.pod}": binding {binding} was rolled back: {why or "its pod is gone"}')

    def _progress_of(self, assignment: Assignment) -> ExtenderPlacement | Underway | None:
        """None: the pod exists, and has neither a node nor a binding."""
        pod = living(self.picture.world.states, f"pod/{assignment.pod}")
        if pod is None or pod.manifest is None:
            where = "the cluster that volsched follows" if self.follows else "this API"
            raise UnseenPodError(f'pod "{assignment.pod}" not found; bind acts on pods of {where}')
        metadata = pod.manifest["metadata"]
        if not assignment.uid:
            raise BindError(NO_UID.format(pod=assignment.pod))
        if metadata.get("uid") != assignment.uid:
            other_uid = metadata.get("uid")
            raise UnseenPodError(
                f'pod "{assignment.pod}" has uid {other_uid}, not {assignment.uid}: it is another pod'
            )
        if version := self.foreign_pods.version_of(assignment.uid):
            raise BindError(FOREIGN_POD.format(pod=assignment.pod, version=version))
        node = spec(pod.manifest).get("nodeName")
        if node:
            return self._on_same_node(assignment, node, ExtenderPlacement(), "is on")
        binding = self.picture.planned.get(assignment.pod)
        state = None if binding is None else self.picture.world.binding(binding)
        if binding is None or state is None:
            return None
        return self._on_same_node(
            assignment, state.plan["node"], Underway(binding, state.plan["deadline"]), "is coming to"
        )

    def _is_reserved(self, binding: str) -> bool:
        state = self.picture.world.binding(binding)
        return state is not None and state.state == Phase.RESERVED

    def _confirm(self, binding: str, *, actor: str, now: int) -> Underway:
        """A reservation for the pod on the same node is what kube-scheduler wants to bind."""
        seconds = self.configuration.bind_timeout_seconds
        try:
            self.submit(confirming(self.database, binding, actor=actor, now=now, timeout_seconds=seconds))
        except GatedError as error:
            raise BindError(str(error)) from None
        return Underway(binding, now + seconds * SECOND)

    def _on_same_node(self, assignment: Assignment, node: str, progress: T, verb: str) -> T:
        if node != assignment.node:
            raise BindError(
                f'pod "{assignment.pod}" {verb} node "{node}" already; it cannot go to "{assignment.node}"'
            )
        return progress

    def _plan(self, assignment: Assignment, now: int) -> Planned:
        index = self.picture.index
        pod, node = index.snapshot.pods.get(assignment.pod), index.snapshot.nodes.get(assignment.node)
        if node is None:
            raise BindError(UNKNOWN_NODE.format(name=assignment.node))
        if pod is None or pod.meta.being_deleted or pod.scheduling_gates:
            why = (
                "waits behind scheduling gates" if pod is not None and pod.scheduling_gates else "is being deleted"
            )
            raise BindError(f'pod "{assignment.pod}" {why}')
        roll_call = index.roll_call(pod, (node.name,), avoid=self._avoid(pod, now))
        _raise_errors(roll_call)
        verdict = roll_call.verdicts[node.name] if roll_call.status.passed else None
        status = roll_call.status if verdict is None else verdict.status
        if verdict is None or not status.passed:
            raise BindError(f'pod "{assignment.pod}" cannot go to node "{node.name}": {_reasons(status)}')
        missing = not_ready(verdict.answer)
        if missing is not None:
            raise BindError(f'pod "{assignment.pod}" cannot go to node "{node.name}" yet: {missing}')
        try:
            _, reserved = assume_pod_volumes(index.snapshot, pod, node, verdict.answer, profile=index.profile)
        except AttemptError as error:
            raise BindError(str(error)) from None
        return plan_for(
            pod,
            Attempt(status=SUCCESS, claims=roll_call.claims, verdicts=(verdict,), chosen=verdict),
            reserved,
            binding=self.new_id(),
            picture=self.picture,
            now=now,
            timeout_seconds=self.configuration.bind_timeout_seconds,
        )


def _raise_errors(roll_call: RollCall) -> None:
    for status in (roll_call.status, *(it.status for it in roll_call.verdicts.values())):
        if status.code is Code.ERROR:
            raise BindError(_reasons(status))


def _reasons(status: Status) -> str:
    return ", ".join(status.reasons)
