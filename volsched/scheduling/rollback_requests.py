"""Asking claims back: marking them for rollback on behalf of a pod that they keep from running, not too often."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from volsched.binding.rules.rollback_request import (
    GAVE_UP,
    MOST_REQUESTS,
    REQUESTED,
    SECONDS_BETWEEN,
    claims_to_ask_back,
)
from volsched.kube.kinds import Object
from volsched.kube.meta import ROLLBACK
from volsched.kube.workloads import Pod
from volsched.log.commands import Command
from volsched.log.events.decision import NOTHING, Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState
from volsched.objects import door
from volsched.objects.rules.notices import last_told, notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.index import Index
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.pod_scheduled import COMPONENT

GAVE_UP_REMEDY = (
    "claims were asked back five times and the pod still finds no node; delete the pod, or a claim that holds no "
    "data you need, or add a volume where the others are (volsched explain pod says what is missing)"
)


def claims_worth_asking(
    index: Index, pod: Pod, refusal: str, *, avoid: Collection[str] = frozenset()
) -> tuple[str, ...]:
    """The pod's claims to ask back, in name order. Whether it would help is tried on the index."""
    users = index.users_of(use.key for use in claim_uses(pod))

    def finds_node(freed: Sequence[Object]) -> bool:
        with index.supposing(freed):
            return index.decide(pod, avoid=avoid).chosen is not None

    return claims_to_ask_back(
        replace(index.snapshot, pods=users),
        pod,
        refusal,
        foreign=index.profile.releases_foreign_volumes,
        finds_node=finds_node,
    )


def ask_back(world: World, pod: Pod, claims: Sequence[str], *, actor: str, now: int) -> list[Command]:
    """Mark the claims for rollback, at most once a minute and five times in the life of a pod."""
    # Counted in one place, whichever claims are asked back: the notice itself is the memory of it.
    told = notice_stream("Pod", pod.key, pod.meta.uid, REQUESTED, REQUESTED)
    count, last = last_told(world.states.get(told))
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
    message = f"asked back {', '.join(claims)}: bound where this pod cannot run, and still empty"
    marks = [_marking(world, pod, claim, actor) for claim in claims]
    said = door.notice(
        "Pod", pod.key, door.controller(actor, now),
        uid=pod.meta.uid, type_="Normal", reason=REQUESTED, message=message, component=COMPONENT, place=told,
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
