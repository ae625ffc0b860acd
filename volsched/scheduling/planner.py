"""Turns a decision into a plan (the legs of a binding, with the versions decided on) and its command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of
from typing import Literal

from volsched.binding.rules.plan import Plan, PlannedLeg, may_outdate, outdated, plan
from volsched.kube.meta import BIND_TIMEOUT_SECONDS, ON_FAILURE
from volsched.kube.storage import READ_WRITE_ONCE_POD
from volsched.kube.workloads import Pod
from volsched.log.commands import Command, Precondition, Scan
from volsched.log.events.fold import Decision, ObjectState, States, origin_version, version
from volsched.runtime.clock import SECOND
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.plugins.topology_spread import DO_NOT_SCHEDULE, constraints_of
from volsched.scheduling.rules.attempts import event_of_attempt
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.dynamic_volumes import PromisedCapacity
from volsched.scheduling.rules.volume_filter import AssumedDecision, AssumedVolume

VERSION = version_of("volsched")
MOST_DIGITS = 7
"""Maximum length of a time-out in seconds: some months. Anything longer is a mistake."""


@dataclass(frozen=True, slots=True)
class Planned:
    pod: Pod
    plan: Plan
    attempt: Attempt

    @property
    def reserved(self) -> dict[str, PromisedCapacity]:
        """The room that the plan needs, by claim uid."""
        return {
            leg.claim_uid: PromisedCapacity(leg.capacity, leg.bytes)
            for leg in self.plan.legs
            if leg.capacity is not None and leg.bytes is not None
        }


def plan_for(
    pod: Pod,
    decision: Attempt,
    assumption: AssumedDecision,
    *,
    binding: str,
    picture: Picture,
    now: int,
    timeout_seconds: int,
) -> Planned:
    """The plan of a decision. The picture shows it from here on, so that the next pod sees what it takes."""
    assert decision.chosen is not None
    assumption = _once_per_claim(assumption)
    request = Plan(
        binding=binding,
        pod=pod.key,
        pod_uid=pod.meta.uid,
        node=decision.chosen.node,
        legs=tuple(_legs(decision, assumption, picture)),
        decided_at=picture.world.position,
        deadline=now + bind_seconds(pod, timeout_seconds) * SECOND,
        on_failure=_on_failure(pod),
        minds=bool(pod.pod_affinity.required or pod.pod_anti_affinity.required or pod.spread),
        alpha_annotations=picture.index.profile.writes_alpha_annotations,
        repels=bool(pod.pod_anti_affinity.required),
        staged=_is_foreign(picture, f"pod/{pod.key}"),
        exclusive=frozenset(it.key for it in decision.claims.bound if READ_WRITE_ONCE_POD in it.access_modes),
    )
    planned = Planned(pod, request, decision)
    volumes = (assumed.volume for assumed in assumption.volumes)
    picture.imagine([*volumes, *assumption.claims, replace(pod, node_name=request.node)], planned.reserved)
    return planned


def plan_command(entry: Planned, *, actor: str, decider: str, earlier: Sequence[Planned] = ()) -> Command:
    """The command that carries out the plan, unless an event since the decision invalidates it.

    `earlier` are the plans of the same batch that the picture showed when this one was decided.
    """
    attempt_event = event_of_attempt(entry.pod, entry.attempt, entry.plan.binding, entry.plan.decided_at, decider)
    company = {it.plan.pod: it.plan.node for it in earlier} if counts_on_others(entry.pod) else {}

    def decide(states: States) -> Decision:
        decision = plan(entry.plan, states, company=company)
        return replace(decision, events=(*decision.events, attempt_event))

    return Command(
        actor=actor,
        streams=(*entry.plan.streams, attempt_event.stream, *(f"pod/{pod}" for pod in company)),
        decide=decide,
        precondition=Precondition(scan=Scan(entry.plan.decided_at, outdated(entry.plan), concerns=may_outdate)),
    )


def decider(owner: str) -> str:
    """The decider stored in an attempt: the same owner may decide differently after an upgrade."""
    return f"{owner} (volsched {VERSION})"


def counts_on_others(pod: Pod) -> bool:
    """Whether the pod's placement depends on the places of other pods."""
    return bool(pod.pod_affinity.required or constraints_of(pod, DO_NOT_SCHEDULE))


def _once_per_claim(assumption: AssumedDecision) -> AssumedDecision:
    """The decision with one entry per claim: in `parity`, each of the pod's volumes that mounts it was decided.

    The reference writes all decisions; the PV controller then completes one of them and frees the others.
    """
    volumes: dict[str, AssumedVolume] = {}
    for assumed in assumption.volumes:
        volumes.setdefault(assumed.claim.key, assumed)
    claims = {claim.key: claim for claim in assumption.claims if claim.key not in volumes}
    return replace(assumption, volumes=tuple(volumes.values()), claims=tuple(claims.values()))


def _legs(decision: Attempt, assumption: AssumedDecision, picture: Picture) -> Iterator[PlannedLeg]:
    assert decision.chosen is not None
    in_flight = {assumed.claim.key for assumed in assumption.volumes}
    bound = {claim.key: claim for claim in decision.claims.bound if claim.key not in in_flight}
    for claim in bound.values():
        yield PlannedLeg(claim=claim.key, claim_uid=claim.meta.uid, volume=claim.volume_name, rv="", bound=True)
    for assumed in assumption.volumes:
        yield PlannedLeg(
            claim=assumed.claim.key,
            claim_uid=assumed.claim.meta.uid,
            volume=assumed.volume.name,
            rv=_version(picture, f"volume/{assumed.volume.name}"),
            joins=picture.owners.get(assumed.claim.key),
        )
    provisions = {provision.claim.key: provision for provision in decision.chosen.answer.provisions}
    for claim in assumption.claims:
        provision = provisions[claim.key]
        capacity = None if provision.capacity is None else provision.capacity.key
        yield PlannedLeg(
            claim=claim.key,
            claim_uid=claim.meta.uid,
            volume=None,
            rv=_version(picture, f"claim/{claim.key}"),
            joins=picture.owners.get(claim.key),
            capacity=capacity,
            bytes=None if capacity is None else picture.index.profile.bytes_of(claim.size),
        )


def _is_foreign(picture: Picture, stream: str) -> bool:
    state = picture.world.states.get(stream)
    return isinstance(state, ObjectState) and origin_version(state) is not None


def _version(picture: Picture, stream: str) -> str:
    state = picture.world.states[stream]
    assert isinstance(state, ObjectState)
    return version(state)


def bind_seconds(pod: Pod, default: int) -> int:
    """How long the binding may take: the pod's annotation, or the default."""
    given = pod.meta.annotations.get(BIND_TIMEOUT_SECONDS, "")
    return int(given) if given.isdecimal() and len(given) <= MOST_DIGITS else default


def _on_failure(pod: Pod) -> Literal["rollback", "retain"]:
    return "retain" if pod.meta.annotations.get(ON_FAILURE) == "retain" else "rollback"
