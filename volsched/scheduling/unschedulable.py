"""Telling a pod that it found no node: the attempt with its reasons, the pod's condition and a Kubernetes event.

One command, and thus one transaction, for all three. An answer that is the same as the last one is only counted.
"""

from dataclasses import dataclass

from volsched.kube.manifest import uid
from volsched.kube.workloads import Pod
from volsched.log.commands import Command
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.object_states import living, origin_version
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.scheduling.rules.attempts import attempt_made, told_message
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.pod_scheduled import COMPONENT, FAILED_SCHEDULING, reason_of, refused_conditions

LOOK_AGAIN = 300 * SECOND


@dataclass(frozen=True, slots=True)
class ToldReasons:
    """What a pod was told last, and in which attempt."""

    uid: str
    attempt: str
    said: str
    claims: str = ""
    """What was stored claim by claim."""
    looked_at: int = 0

    def is_due(self, now: int) -> bool:
        """Whether to look again at what stands behind the same answer, which costs more than the answer."""
        return now - self.looked_at >= LOOK_AGAIN


def telling_again(told: ToldReasons, *, actor: str, decided_at: int) -> Command:
    repeat = NewEvent(stream=f"attempt/{told.attempt}", type="AttemptRepeated", data={"decided_at": decided_at})
    return Command(actor=actor, streams=(repeat.stream,), decide=lambda _: Decision(events=(repeat,)))


def telling_pod(
    pod: Pod, found: Attempt, *, id_: str, decided_at: int, decider: str, actor: str, now: int, keeps: bool
) -> Command:
    """`keeps`: the pod keeps the condition it has, because it says which node turned it away, and when."""
    made, message, time = attempt_made(pod, found, id_, decided_at, decider), told_message(found), rfc3339(now)
    pod_stream = f"pod/{pod.key}"
    notice = notice_stream("Pod", pod.key, pod.meta.uid, FAILED_SCHEDULING, message)

    def decide(states: States) -> Decision:
        events = [made]
        held = living(states, pod_stream)
        if held is None or held.manifest is None or uid(held.manifest) != pod.meta.uid:
            # Gone meanwhile. That it was tried is still worth knowing.
            return Decision(events=(made,))
        # What lives in a foreign cluster is written there, or nowhere; and whoever planned the pod meanwhile knows
        # better than we do.
        if origin_version(held) is None and held.assumed is None and not keeps:
            reason = reason_of(found.status.code)
            conditions = refused_conditions(held.manifest, reason=reason, message=message, now=time)
            if conditions is not None:
                patch = {"status": {"conditions": conditions}}
                events.append(NewEvent(stream=pod_stream, type="PodChanged", data={"patch": patch}))
        events.append(
            notice_event(
                states.get(notice), notice, kind="Pod", key=pod.key, uid=pod.meta.uid, type_="Warning",
                reason=FAILED_SCHEDULING, message=message, component=COMPONENT, now=time,
            )
        )  # fmt: skip
        return Decision(events=tuple(events))

    return Command(actor=actor, streams=(made.stream, pod_stream, notice), decide=decide)
