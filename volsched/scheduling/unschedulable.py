"""A pod that found no node: the reason is reported on it, and a rollback of claims that block it is requested."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from volsched.binding.rules.failures import GAVE_UP, MOST_REQUESTS, REQUESTED, SECONDS_BETWEEN, claims_to_roll_back
from volsched.binding.rules.foreign_notice import notice_effect
from volsched.kube.manifest import uid
from volsched.kube.meta import ROLLBACK
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.log.commands import Command, Precondition, version_of
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import Decision, NewEffect, ObjectState, States, living, origin_version
from volsched.objects import door
from volsched.objects.rules.object_events import changed_event, last_emission, notice_event, notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.index import Index
from volsched.scheduling.rules.attempts import (
    COMPONENT,
    FAILED_SCHEDULING,
    event_of_attempt,
    pod_message,
    reason_of,
    refused_conditions,
)
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.reasons import GAVE_UP_REMEDY, rollback_requested

# One command, and thus one transaction, for attempt, condition and notice. A repeated answer is only counted.

LOOK_AGAIN = 300 * SECOND


@dataclass(frozen=True, slots=True)
class ReportedReason:
    """The last reason reported on a pod, and its attempt."""

    uid: str
    attempt: str
    message: str
    claims: str = ""
    """The details stored per claim."""
    computed_at: int = 0

    def is_due(self, now: int) -> bool:
        """Whether to compute the details of a repeated answer again; they cost more than the answer."""
        return now - self.computed_at >= LOOK_AGAIN


def repetition(reported: ReportedReason, *, actor: str, decided_at: int) -> Command:
    repeat = NewEvent(
        stream=f"attempt/{reported.attempt}", type="AttemptRepeated", data={"decided_at": decided_at}
    )
    return Command(actor=actor, streams=(repeat.stream,), decide=lambda _: Decision(events=(repeat,)))


def refusal_report(
    pod: Pod, decision: Attempt, *, id_: str, decided_at: int, decider: str, actor: str, now: int, keeps: bool
) -> Command:
    """The command that reports a refusal. `keeps`: the pod keeps its condition, which names the rejecting node."""
    attempt_event, message, time = (
        event_of_attempt(pod, decision, id_, decided_at, decider),
        pod_message(decision),
        rfc3339(now),
    )
    pod_stream = f"pod/{pod.key}"
    notice = notice_stream("Pod", pod.key, pod.meta.uid, FAILED_SCHEDULING, message)

    def decide(states: States) -> Decision:
        events = [attempt_event]
        state = living(states, pod_stream)
        if state is None or state.manifest is None or uid(state.manifest) != pod.meta.uid:
            # Deleted meanwhile. The attempt is still stored.
            return Decision(events=(attempt_event,))
        # Objects of a foreign cluster are written there or not at all; and a plan that another process made
        # for the pod meanwhile takes precedence.
        if origin_version(state) is None and state.assumed is None and not keeps:
            reason = reason_of(decision.status.code)
            conditions = refused_conditions(state.manifest, reason=reason, message=message, now=time)
            if conditions is not None:
                patch = {"status": {"conditions": conditions}}
                events.append(changed_event(pod_stream, patch))
        events.append(
            notice_event(
                states.get(notice), notice, kind="Pod", key=pod.key, uid=pod.meta.uid, type_="Warning",
                reason=FAILED_SCHEDULING, message=message, component=COMPONENT, now=time,
            )
        )  # fmt: skip
        is_foreign = origin_version(state) is not None and state.assumed is None
        return Decision(
            events=tuple(events), effects=(_notice_effect(pod, decision, id_, message),) if is_foreign else ()
        )

    return Command(actor=actor, streams=(attempt_event.stream, pod_stream, notice), decide=decide)


def _notice_effect(pod: Pod, decision: Attempt, id_: str, message: str) -> NewEffect:
    """The effect that writes the condition to a foreign cluster: autoscalers act on its reason Unschedulable."""
    return notice_effect(
        id_, kind="Pod", key=pod.key, uid=pod.meta.uid, type_="Warning", reason=FAILED_SCHEDULING, message=message,
        condition=reason_of(decision.status.code),
    )  # fmt: skip


# Rollback requests for claims that keep a pod from running, at a limited rate.


def claims_to_roll_back_for(
    index: Index, pod: Pod, refusal: str, *, avoid: Collection[str] = frozenset()
) -> tuple[str, ...]:
    """The pod's claims to roll back, in name order. The index simulates whether a rollback would help."""
    users = index.users_of(use.key for use in claim_uses(pod))

    def finds_node(freed: Sequence[Object]) -> bool:
        with index.supposing(freed):
            return index.decide(pod, avoid=avoid).chosen is not None

    return claims_to_roll_back(
        replace(index.snapshot, pods=users),
        pod,
        refusal,
        foreign=index.profile.releases_foreign_volumes,
        finds_node=finds_node,
    )


def request_rollbacks(world: World, pod: Pod, claims: Sequence[str], *, actor: str, now: int) -> list[Command]:
    """Mark the claims for rollback, at most once a minute and five times in the life of a pod."""
    # Counted in one place for all claims: the notice itself is the counter.
    if any(_is_foreign(world, claim) for claim in claims):
        # No controller of a foreign cluster honours the request.
        return []
    place = notice_stream("Pod", pod.key, pod.meta.uid, REQUESTED, REQUESTED)
    count, last = last_emission(world.states.get(place))
    if count >= MOST_REQUESTS:
        return [
            door.notice(
                "Pod", pod.key, door.controller(actor, now),
                uid=pod.meta.uid, type_="Warning", reason=GAVE_UP, message=GAVE_UP_REMEDY,
                component=COMPONENT, once=True,
            )
        ]  # fmt: skip
    if last and last > rfc3339(now - SECONDS_BETWEEN * SECOND):
        return []
    marks = [_rollback_mark(world, pod, claim, actor) for claim in claims]
    said = door.notice(
        "Pod", pod.key, door.controller(actor, now),
        uid=pod.meta.uid, type_="Normal", reason=REQUESTED, message=rollback_requested(claims),
        component=COMPONENT, place=place,
    )  # fmt: skip
    return [*marks, said]


def _is_foreign(world: World, claim: str) -> bool:
    state = world.states.get(f"claim/{claim}")
    return isinstance(state, ObjectState) and origin_version(state) is not None


def _rollback_mark(world: World, pod: Pod, claim: str, actor: str) -> Command:
    """Refused if the claim has changed since the decision: the next cycle decides again."""
    stream = f"claim/{claim}"
    mark = door.edit(stream, {"metadata": {"annotations": {ROLLBACK: pod.meta.uid}}}, actor=actor)
    decided_on = {stream: version_of(world.states.get(stream))}
    return door.together(mark, precondition=Precondition(objects=decided_on))
