"""The scheduler's loop: take pods from the queue, decide, and plan every decision as one transaction.

Several pods are decided against one picture, each sees what the ones before it took, and all are planned in one
commit. A plan that lost a race is decided again. Pods that found no node get the reason in their status, and wait
in the queue for a change that could help them (`scheduling.queue`).
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from volsched.kube.meta import OUR_SCHEDULERS
from volsched.kube.workloads import TERMINATED, Pod
from volsched.log.commands import Command, ConflictError, Continuation, Done
from volsched.log.database import Database
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.fault_points import reach
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.planner import Planned, decider, plan_command, plan_for
from volsched.scheduling.queue.entry import Share
from volsched.scheduling.queue.queue import Queue
from volsched.scheduling.rules.attempts import claims_kept, message_of, rejectors_of
from volsched.scheduling.rules.cycle import VOLUME_BINDING, Attempt
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.pod_claims import PodClaims
from volsched.scheduling.rules.status import AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import assume_pod_volumes, not_ready
from volsched.scheduling.unschedulable import (
    ReportedReason,
    claims_to_roll_back_for,
    refusal_report,
    repetition,
    request_rollbacks,
)

_log = logging.getLogger("volsched.scheduler")
BATCH = 32
"""Pods decided and committed together. Other writers wait for the head during a batch, about a millisecond per
pod; a batch four times as large would save 5 % of the work (docs/performance.md)."""
MOST_HALVINGS = 5
"""The batch shrinks while other writers win: a plan that is committed sooner is less often too late."""
BIND_TIMEOUT_SECONDS = 600
_VOLUMES = frozenset({VOLUME_BINDING})


@dataclass(frozen=True, slots=True)
class _Refused:
    pod: Pod
    attempt: Attempt
    reported: ReportedReason
    repeated: bool
    commands: list[Command]
    """The first reports the reason on the pod; any others request a rollback of its claims."""


@dataclass(slots=True)
class Scheduler:
    database: Database
    picture: Picture
    owner: str
    new_id: Callable[[], str]
    batch: int = BATCH
    bind_timeout_seconds: int = BIND_TIMEOUT_SECONDS
    queue: Queue = field(default_factory=Queue)
    names: tuple[str, ...] = OUR_SCHEDULERS
    """Values of schedulerName whose pods are ours."""
    gate: str | None = None
    """If set, pods behind this scheduling gate are ours, whatever their schedulerName: we bind their claims."""
    continuation: Callable[[int], Continuation | None] | None = None
    """Carries plans out in their own transaction, as far as they can be."""
    _halvings: int = 0
    """How many times the batch is halved at present."""
    _reported: dict[str, ReportedReason] = field(default_factory=dict)
    _unreported: set[str] = field(default_factory=set)
    """Pods on which the last report of the reason could not be written."""

    def update(self, streams: Iterable[str], now: int) -> None:
        """Queue what has changed in the world; the picture was updated before."""
        for stream in streams:
            if stream.startswith("pod/"):
                self._update_pod(stream.removeprefix("pod/"), now)
        self._hear(now)

    def step(self, now: int) -> int:
        """Decide a batch of pods and plan the decisions; returns how many were taken."""
        taken: list[Pod] = []
        planned: list[Planned] = []
        refused: list[_Refused] = []
        put_off: list[Pod] = []
        try:
            most = max(self.batch >> self._halvings, min(self.batch, 1))
            while len(taken) < most and (pod := self._next(now)) is not None:
                taken.append(pod)
                began = time.perf_counter()
                decided = self._decide(pod, now)
                self.database.meters.decisions.observe(time.perf_counter() - began)
                if decided is None:
                    put_off.append(pod)
                elif isinstance(decided, Planned):
                    planned.append(decided)
                else:
                    refused.append(decided)
            # Before the plans: a claim with a rollback request cannot be planned in the same step.
            unreported = self._write_reports(refused, now)
            if planned:
                reach("scheduler.decided")
                self._commit(planned, now)
                reach("scheduler.planned")
            self._put_aside(refused, unreported, now)
            self._put_off(put_off, now)
        except Exception:
            # The outcome of the commit is unknown. Remove the plans from the picture; the log shows the outcome,
            # and all of these pods are decided again.
            for entry in planned:
                self.picture.update(entry.plan.streams)
            self.picture.wake_up()
            for pod in taken:
                self.queue.returned(pod.key)
            raise
        finally:
            self._hear(now)
        return len(taken)

    def share_as(self, share: Share) -> None:
        """Set this scheduler's share from now on; pods already in order keep their place."""
        self.queue.share = self.picture.index.share = share

    def next_due(self) -> int | None:
        """The time at which a pod is due; None: not before something changes."""
        return self.queue.next_due()

    def waiting(self) -> Mapping[str, str]:
        """The pods that found no node, with the reason."""
        return {key: told.message for key, told in self._reported.items()}

    def _update_pod(self, key: str, now: int) -> None:
        pod = self.picture.index.snapshot.pods.get(key)
        told = self._reported.get(key)
        if told is not None and (pod is None or pod.meta.uid != told.uid or pod.node_name):
            # Deleted, recreated under the same name, or placed: the reported reason is void.
            del self._reported[key]
        if pod is not None and key in self.picture.planned:
            self.queue.planned(pod)
        elif pod is not None and (
            wants_node(pod, self.names) if self.gate is None else wants_volumes(pod, self.gate)
        ):
            self.queue.offer(pod, now)
        else:
            self.queue.forget(key)
            self._unreported.discard(key)

    def _hear(self, now: int) -> None:
        """Pass changes of the picture to the queue, and record further ones only while pods wait."""
        if self.picture.changes:
            self.queue.happened(self.picture.changes, self.picture.index.snapshot, now)
        self.picture.changes = [] if self.queue.listens else None

    def _next(self, now: int) -> Pod | None:
        # Changes by earlier pods of the batch did not happen during this pod's decision.
        self._hear(now)
        pod = self.queue.take(now)
        if self.picture.changes is None and pod is not None:
            self.picture.changes = []
        return pod

    def _decide(self, pod: Pod, now: int) -> Planned | _Refused | None:
        """Decide about one pod. The picture shows a plan from here on, so that the next pod sees it.

        None: there is a node, but the pod's volumes there are not ready.
        """
        index, since = self.picture.index, rfc3339(now - AVOID_SECONDS * SECOND)
        avoid = nodes_to_avoid(
            pod.key, self.picture.world.states, since=since, changed_at=self.picture.node_changed_at
        ) | self.picture.rejecting_nodes(since)
        snapshot = index.snapshot
        try:
            decision = index.decide(pod, avoid=avoid, demerits=self.picture.demerits(pod, now))
        except Exception as error:
            # Most likely an error of an external plugin. It concerns this pod; the others continue.
            decision = Attempt(status=Status(Code.ERROR, (f"deciding failed: {error!r}",)), claims=PodClaims())
        if decision.chosen is None:
            return self._refuse(pod, decision, avoid, now)
        if not_ready(decision.chosen.answer) is not None:
            return None
        node = snapshot.nodes[decision.chosen.node]
        try:
            _, reservation = assume_pod_volumes(snapshot, pod, node, decision.chosen.answer, profile=index.profile)
        except AttemptError as error:
            failed = Attempt(status=Status(Code.ERROR, (str(error),)), claims=decision.claims)
            return self._refuse(pod, failed, avoid, now)
        return plan_for(
            pod,
            decision,
            reservation,
            binding=self.new_id(),
            picture=self.picture,
            now=now,
            timeout_seconds=self.bind_timeout_seconds,
        )

    def _refuse(self, pod: Pod, decision: Attempt, avoid: frozenset[str], now: int) -> _Refused:
        """Store the reason, and request a rollback of claims if that helps; repeated answers are only counted."""
        decided_at, before, said = self.picture.world.position, self._reported.get(pod.key), message_of(decision)
        index = self.picture.index
        wanted = claims_to_roll_back_for(index, pod, said, avoid=avoid)
        requests = request_rollbacks(self.picture.world, pod, wanted, actor=self.owner, now=now) if wanted else []
        if before is not None and before.message == said and not before.is_due(now):
            return _Refused(pod, decision, before, True, [self._again(before, decided_at), *requests])
        decision = replace(decision, in_full=index.in_full(pod, decision, avoid=avoid))
        claims = claims_kept(decision)
        if before is not None and (before.message, before.claims) == (said, claims):
            known = replace(before, computed_at=now)
            return _Refused(pod, decision, known, True, [self._again(before, decided_at), *requests])
        reasons = ReportedReason(pod.meta.uid, self.new_id(), said, claims, now)
        report = refusal_report(
            pod,
            decision,
            id_=reasons.attempt,
            decided_at=decided_at,
            decider=self._decider,
            actor=self.owner,
            now=now,
            keeps=bool(avoid),
        )
        return _Refused(pod, decision, reasons, False, [report, *requests])

    def _again(self, reported: ReportedReason, decided_at: int) -> Command:
        return repetition(reported, actor=self.owner, decided_at=decided_at)

    def _write_reports(self, refused: Sequence[_Refused], now: int) -> frozenset[str]:
        """Write the reports; returns the pods whose report failed."""
        outcomes = iter(
            execute(self.database, [command for entry in refused for command in entry.commands], now=now)
        )
        unreported: set[str] = set()
        for entry in refused:
            key, (report, *requests) = entry.pod.key, islice(outcomes, len(entry.commands))
            if isinstance(report, Exception):
                unreported.add(key)
                _log.warning(
                    'why pod "%s" found no node could not be recorded, and is tried again: %s', key, report
                )
            for outcome in requests:
                if isinstance(outcome, Exception):
                    # Decided again at the pod's next attempt.
                    _log.warning('the rollback of a claim was not requested for pod "%s": %s', key, outcome)
        return frozenset(unreported)

    def _put_aside(self, refused: Sequence[_Refused], unreported: frozenset[str], now: int) -> None:
        for entry in refused:
            key = entry.pod.key
            self._hear(now)
            if key in unreported:
                # Forget an attempt that was not stored; otherwise the next one would only be counted.
                self._reported.pop(key, None)
                self.queue.failed(key, now, awaited=key not in self._unreported)
                self._unreported.add(key)
                continue
            self._reported[key] = entry.reported
            self._unreported.discard(key)
            if entry.attempt.status.code is Code.ERROR:
                self.queue.failed(key, now, awaited=not entry.repeated)
            else:
                self.queue.rejected(key, rejectors_of(entry.attempt), self.picture.index.snapshot, now)

    def _put_off(self, pods: Sequence[Pod], now: int) -> None:
        for pod in pods:
            self._hear(now)
            self.queue.put_off(pod.key, _VOLUMES, self.picture.index.snapshot, now)

    def _commit(self, planned: Sequence[Planned], now: int) -> None:
        commands = [
            plan_command(entry, actor=self.owner, decider=self._decider, earlier=planned[:place])
            for place, entry in enumerate(planned)
        ]
        go_on = None if self.continuation is None else self.continuation(now)
        outcomes = execute(self.database, commands, now=now, go_on=go_on)
        faster: tuple[type[Exception], ...] = (ConflictError, *self.database.refusals)
        late = any(isinstance(outcome, faster) for outcome in outcomes)
        self._halvings = min(self._halvings + 1, MOST_HALVINGS) if late else max(self._halvings - 1, 0)
        for entry, outcome in zip(planned, outcomes, strict=True):
            key = entry.pod.key
            if isinstance(outcome, Done):
                self.queue.planned(entry.pod)
                self._reported.pop(key, None)
                continue
            self.picture.update(entry.plan.streams)
            self.picture.note_room(room.capacity for room in entry.reserved.values())
            if isinstance(outcome, faster):
                # The picture includes the other write by then, so the next decision sees it.
                self.queue.late(key, now)
            else:
                self.queue.failed(key, now)
        self.picture.wake_up()

    @property
    def _decider(self) -> str:
        return decider(self.owner)


def wants_node(pod: Pod, names: Collection[str] = OUR_SCHEDULERS) -> bool:
    """Whether the pod is ours to place, and has no node yet."""
    return (
        not pod.node_name
        and pod.scheduler_name in names
        and not pod.meta.being_deleted
        and not pod.scheduling_gates
        and pod.phase not in TERMINATED
    )


def wants_volumes(pod: Pod, gate: str) -> bool:
    """Whether the pod waits behind our gate until its claims are bound."""
    return (
        not pod.node_name
        and any(it.name == gate for it in pod.scheduling_gates)
        and not pod.meta.being_deleted
        and pod.phase not in TERMINATED
    )
