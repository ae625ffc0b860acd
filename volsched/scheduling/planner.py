"""From a decision to a plan (the legs of a binding, with the versions they were decided on) and its command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of
from typing import Literal

from volsched.binding.rules.plan import Plan, PlannedLeg, plan
from volsched.binding.rules.plan_conflicts import outdated
from volsched.kube.storage import READ_WRITE_ONCE_POD
from volsched.kube.workloads import Pod
from volsched.log.commands import Command, Precondition, Scan
from volsched.log.events.decision import Decision, States
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_states import version
from volsched.runtime.clock import SECOND
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.plugins.topology_spread import DO_NOT_SCHEDULE, constraints_of
from volsched.scheduling.rules.assume import AssumedVolume, Reservation
from volsched.scheduling.rules.attempts import attempt_made
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.promised_capacity import PromisedCapacity

VERSION = version_of("volsched")
MOST_DIGITS = 7
"""Of a time-out in seconds: some months. Anything longer is a slip of the pen."""
TIMEOUT_SECONDS = "volsched.io/bind-timeout-seconds"
ON_FAILURE = "volsched.io/on-failure"


@dataclass(frozen=True, slots=True)
class Planned:
    pod: Pod
    plan: Plan
    attempt: Attempt

    @property
    def reserved(self) -> dict[str, PromisedCapacity]:
        """Room that the plan asks for, by the uid of the claim that it is for."""
        return {
            leg.claim_uid: PromisedCapacity(leg.capacity, leg.bytes)
            for leg in self.plan.legs
            if leg.capacity is not None and leg.bytes is not None
        }


def plan_for(
    pod: Pod,
    found: Attempt,
    reservation: Reservation,
    *,
    binding: str,
    picture: Picture,
    now: int,
    timeout_seconds: int,
) -> Planned:
    """The plan of a decision. The picture shows it from here on, so that the next pod sees what is taken."""
    assert found.chosen is not None
    reservation = _once_per_claim(reservation)
    request = Plan(
        binding=binding,
        pod=pod.key,
        pod_uid=pod.meta.uid,
        node=found.chosen.node,
        legs=tuple(_legs(found, reservation, picture)),
        decided_at=picture.world.position,
        deadline=now + bind_seconds(pod, timeout_seconds) * SECOND,
        on_failure=_on_failure(pod),
        minds=bool(pod.pod_affinity.required or pod.pod_anti_affinity.required or pod.spread),
        alpha_annotations=picture.index.profile.writes_alpha_annotations,
        repels=bool(pod.pod_anti_affinity.required),
        exclusive=frozenset(it.key for it in found.claims.bound if READ_WRITE_ONCE_POD in it.access_modes),
    )
    planned = Planned(pod, request, found)
    volumes = (assumed.volume for assumed in reservation.volumes)
    picture.imagine([*volumes, *reservation.claims, replace(pod, node_name=request.node)], planned.reserved)
    return planned


def plan_command(entry: Planned, *, actor: str, decider: str, earlier: Sequence[Planned] = ()) -> Command:
    """What carries the plan out, unless something has happened since that makes it worthless.

    `earlier` are the plans of the same batch that the picture showed when this one was decided.
    """
    made = attempt_made(entry.pod, entry.attempt, entry.plan.binding, entry.plan.decided_at, decider)
    company = {it.plan.pod: it.plan.node for it in earlier} if counts_on_others(entry.pod) else {}

    def decide(states: States) -> Decision:
        decision = plan(entry.plan, states, company=company)
        return replace(decision, events=(*decision.events, made))

    return Command(
        actor=actor,
        streams=(*entry.plan.streams, made.stream, *(f"pod/{pod}" for pod in company)),
        decide=decide,
        precondition=Precondition(scan=Scan(entry.plan.decided_at, outdated(entry.plan))),
    )


def decider(owner: str) -> str:
    """Who decided, as an attempt tells it: the same owner may decide otherwise after an upgrade."""
    return f"{owner} (volsched {VERSION})"


def counts_on_others(pod: Pod) -> bool:
    """Can the pod be somewhere only because others are where they are?"""
    return bool(pod.pod_affinity.required or constraints_of(pod, DO_NOT_SCHEDULE))


def _once_per_claim(reservation: Reservation) -> Reservation:
    """A claim is bound once, however many of the pod's volumes mount it and were decided one by one (`parity`).

    The reference writes all that was decided; the PV controller then completes one of them and frees the others.
    """
    volumes: dict[str, AssumedVolume] = {}
    for assumed in reservation.volumes:
        volumes.setdefault(assumed.claim.key, assumed)
    claims = {claim.key: claim for claim in reservation.claims if claim.key not in volumes}
    return replace(reservation, volumes=tuple(volumes.values()), claims=tuple(claims.values()))


def _legs(found: Attempt, reservation: Reservation, picture: Picture) -> Iterator[PlannedLeg]:
    assert found.chosen is not None
    in_flight = {assumed.claim.key for assumed in reservation.volumes}
    bound = {claim.key: claim for claim in found.claims.bound if claim.key not in in_flight}
    for claim in bound.values():
        yield PlannedLeg(claim=claim.key, claim_uid=claim.meta.uid, volume=claim.volume_name, rv="", bound=True)
    for assumed in reservation.volumes:
        yield PlannedLeg(
            claim=assumed.claim.key,
            claim_uid=assumed.claim.meta.uid,
            volume=assumed.volume.name,
            rv=_version(picture, f"volume/{assumed.volume.name}"),
            joins=picture.owners.get(assumed.claim.key),
        )
    provisions = {provision.claim.key: provision for provision in found.chosen.answer.provisions}
    for claim in reservation.claims:
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


def _version(picture: Picture, stream: str) -> str:
    state = picture.world.states[stream]
    assert isinstance(state, ObjectState)
    return version(state)


def bind_seconds(pod: Pod, default: int) -> int:
    """How long its binding may take, as the pod says or as is usual."""
    given = pod.meta.annotations.get(TIMEOUT_SECONDS, "")
    return int(given) if given.isdecimal() and len(given) <= MOST_DIGITS else default


def _on_failure(pod: Pod) -> Literal["rollback", "retain"]:
    return "retain" if pod.meta.annotations.get(ON_FAILURE) == "retain" else "rollback"
