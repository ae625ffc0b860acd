"""Asking claims back: marking them for rollback on behalf of a pod that they keep from running, not too often."""

from collections.abc import Sequence

from volsched.core.binding.requesting import GAVE_UP, MOST_REQUESTS, REQUESTED, SECONDS_BETWEEN
from volsched.core.decision import NOTHING, Decision, States
from volsched.core.fold import ObjectState
from volsched.core.notices import last_told, notice_stream
from volsched.engine.changes import telling
from volsched.engine.clock import SECOND, rfc3339
from volsched.engine.world import World
from volsched.events.envelope import NewEvent
from volsched.model.meta import ROLLBACK
from volsched.model.workloads import Pod
from volsched.store.commands import Command

COMPONENT = "volsched-scheduler"
GAVE_UP_REMEDY = (
    "claims were asked back five times and the pod still finds no node; delete the pod, or a claim that holds no "
    "data you need, or add a volume where the others are (volsched explain pod says what is missing)"
)


def ask_back(world: World, pod: Pod, claims: Sequence[str], *, actor: str, now: int) -> list[Command]:
    """Mark the claims for rollback, at most once a minute and five times in the life of a pod."""
    # Counted in one place, whichever claims are asked back: the notice itself is the memory of it.
    told = notice_stream("Pod", pod.key, pod.meta.uid, REQUESTED, REQUESTED)
    count, last = last_told(world.states.get(told))
    if count >= MOST_REQUESTS:
        return [
            telling(
                "Pod", pod.key, uid=pod.meta.uid, type_="Warning", reason=GAVE_UP, message=GAVE_UP_REMEDY,
                component=COMPONENT, actor=actor, now=now, once=True,
            )
        ]  # fmt: skip
    if last and last > rfc3339(now - SECONDS_BETWEEN * SECOND):
        return []
    message = f"asked back {', '.join(claims)}: bound where this pod cannot run, and still empty"
    marks = [_marking(world, pod, claim, actor) for claim in claims]
    said = telling(
        "Pod", pod.key, uid=pod.meta.uid, type_="Normal", reason=REQUESTED, message=message, component=COMPONENT,
        actor=actor, now=now, place=told,
    )  # fmt: skip
    return [*marks, said]


def _marking(world: World, pod: Pod, claim: str, actor: str) -> Command:
    stream = f"claim/{claim}"
    seen = world.states.get(stream)
    patch = {"metadata": {"annotations": {ROLLBACK: pod.meta.uid}}}

    def decide(states: States) -> Decision:
        now_is = states.get(stream)
        if not isinstance(seen, ObjectState) or not isinstance(now_is, ObjectState) or now_is.rv != seen.rv:
            # Judged on another version of the claim: the next cycle judges again.
            return NOTHING
        return Decision(events=(NewEvent(stream=stream, type="ClaimChanged", data={"patch": patch}),))

    return Command(actor=actor, streams=(stream,), decide=decide)
