"""The extender's decisions: the scheduler's picture, the caller's pods, the rules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from volsched.api.extender.messages import Assignment, Preemption, Sifted, Victims
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.kube.manifest import metadata, spec
from volsched.kube.workloads import Pod
from volsched.log.base import read_base
from volsched.log.commands import Command, ConflictError, RejectedError
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, States, living
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import look_at_head
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

# Pods that a caller has sent and that are not this API's, though name and uid are the same.
#
# An imported dump of another cluster keeps its uids, and so does a copy of a store. If the scheduler of that
# cluster calls us, its pods look like ours, and binding ours would tell it that its own is bound, which then waits
# indefinitely. Only the version distinguishes them: ours is a position at which this log has written that very
# pod.

MOST = 10_000
"""Pods that are remembered; a caller of bind has sent the pod a moment ago."""


@dataclass(slots=True)
class Strangers:
    database: Database
    _versions: dict[str, str] = field(default_factory=dict)
    """Uid → a version that the pod of this API has never had."""

    def meet(self, pod: Pod, states: States) -> None:
        """A pod as its scheduler knows it; `states` are current: the scheduler cannot know more than we do."""
        shown = pod.meta.resource_version
        if not shown or self._is_ours(pod, shown, states):
            self._versions.pop(pod.meta.uid, None)
            return
        self._versions[pod.meta.uid] = shown
        if len(self._versions) > MOST:
            del self._versions[next(iter(self._versions))]

    def version_of(self, uid: str) -> str | None:
        """The version that showed the pod to be foreign; None where nothing did."""
        return self._versions.get(uid)

    def _is_ours(self, pod: Pod, shown: str, states: States) -> bool:
        stream = f"pod/{pod.key}"
        held = living(states, stream)
        if held is None or shown in (str(held.rv), metadata(held.manifest or {}).get("resourceVersion")):
            # A mirrored pod has the version of its own cluster, and is bound there.
            return True
        if not shown.isdecimal() or len(shown) > 18:
            return False
        with self.database.read() as connection:
            written = event(connection, int(shown))
            if written is None:
                return int(shown) <= read_base(connection).position
            return written.stream == stream


# Called in one thread at a time. Of a filter call only one fact is kept until bind: whether the pod is of this API
# (`strangers`). Bind decides again on the present state, for one node and in less than a millisecond, so that no
# decision can be out of date.

TRIES = 5
"""Attempts of a plan when other writers were faster."""
NO_UID = 'pod "{pod}": PodUID is missing, and a pod of another cluster may have that name; say which pod is meant'
STRANGER = (
    'pod "{pod}" lives elsewhere: this API never had it at resourceVersion {version}. Bind acts on pods of this '
    "API; let kube-scheduler be a client of it (its kubeconfig), or leave bindVerb out"
)
UNKNOWN_NODE = 'volsched knows no node "{name}"'
T = TypeVar("T")


class BindError(Exception):
    """The pod cannot be bound to the node; the message says why."""


class UnseenPodError(BindError):
    """Another pod, or none, has this name here; a cluster that is followed may not have been heard of yet."""


@dataclass(frozen=True, slots=True)
class ExtenderPlacement:
    """The pod is on its node."""


@dataclass(frozen=True, slots=True)
class Underway:
    """A binding will place the pod on its node, unless it fails."""

    binding: str
    deadline: int


@dataclass(slots=True)
class Desk:
    database: Database
    configuration: Configuration
    new_id: Callable[[], str]
    submit: Callable[[Command], object]
    """Commits a command, and returns once it is durable; raises the refusal."""
    follows: bool = False
    """The pods are those of a followed cluster: their uids say which pod is meant, and their versions are that
    cluster's, which the caller may have seen earlier or later than we have."""
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
            # Refused before any node was examined: the fault is the pod's, and no eviction helps.
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
        """By node, 0..100, for its volumes: kube-scheduler scores everything else itself.

        0 for nodes where bindings of the pod failed: the protocol has no stronger statement.
        """
        called = self._call(pod, names, now)
        _raise_errors(called)
        demerits, nodes = self.picture.demerits(pod, now), self.picture.index.snapshot.nodes
        return {
            name: 0 if demerits and demerits.of(nodes[name]) else it.scores.get(VOLUME_BINDING, 0)
            for name, it in called.verdicts.items()
        }

    def preemptible(self, asked: Preemption, now: int) -> dict[str, Victims]:
        """The nodes on which evicting other pods may help the pod."""
        sifted = self.sift(asked.pod, tuple(asked.victims), now)
        if sifted.error:
            raise BindError(sifted.error)
        # kube-scheduler takes a node without victims for an error.
        return {node: it for node, it in asked.victims.items() if it.pods and node not in sifted.unresolvable}

    def _call(self, pod: Pod, names: tuple[str, ...], now: int) -> RollCall:
        self.picture.catch_up(now)
        if not self.follows:
            self.strangers.meet(pod, self.picture.world.states)
        return self.picture.index.roll_call(pod, names, avoid=self._avoid(pod, now))

    def _avoid(self, pod: Pod, now: int) -> frozenset[str]:
        since = rfc3339(now - AVOID_SECONDS * SECOND)
        return nodes_to_avoid(pod.key, self.picture.world.states, since=since)

    # --- binding ----------------------------------------------------------------------------------------

    def bind(self, asked: Assignment, *, actor: str, now: int) -> ExtenderPlacement | Underway:
        """Plan the binding, or find it planned or done already; BindError where it is impossible."""
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
                # The assumption is undone. If another writer was faster, the next decision sees why.
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
        """The progress of a planned binding; BindError where it has failed."""
        self.picture.catch_up(now)
        found = self._stands(asked)
        if found is not None:
            return found
        with self.database.read() as connection:
            ended = look_at_head(connection).one(BINDING, binding)
        if isinstance(ended, BindingState) and ended.state == Phase.COMMITTED:
            # A real cluster has bound the pod; its watch shows us the node a moment later.
            return ExtenderPlacement()
        if isinstance(ended, BindingState) and ended.state != Phase.ROLLED_BACK:
            # Committed to the log since the picture was brought up to date.
            return Underway(binding, ended.plan["deadline"])
        why = ended.reason if isinstance(ended, BindingState) else None
        raise BindError(f'pod "{asked.pod}": binding {binding} was rolled back: {why or "its pod is gone"}')

    def _stands(self, asked: Assignment) -> ExtenderPlacement | Underway | None:
        """None: the pod exists, and has neither a node nor a binding."""
        held = living(self.picture.world.states, f"pod/{asked.pod}")
        if held is None or held.manifest is None:
            where = "the cluster that volsched follows" if self.follows else "this API"
            raise UnseenPodError(f'pod "{asked.pod}" not found; bind acts on pods of {where}')
        metadata = held.manifest["metadata"]
        if not asked.uid:
            raise BindError(NO_UID.format(pod=asked.pod))
        if metadata.get("uid") != asked.uid:
            found = metadata.get("uid")
            raise UnseenPodError(f'pod "{asked.pod}" has uid {found}, not {asked.uid}: it is another pod')
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
        """A reservation for the pod on the same node is what kube-scheduler wants to bind."""
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
