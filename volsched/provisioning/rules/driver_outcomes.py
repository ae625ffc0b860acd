"""What a driver's answer means for the claim.

The one thing that must never happen is to send the pod elsewhere while storage may still come to be here.
"""

from dataclasses import dataclass
from enum import StrEnum

from volsched.provisioning.rules.topology_requirement import Term


class DriverCode(StrEnum):
    """Why a driver's call failed, in gRPC's words; INTERNAL stands for every code that has no row of its own."""

    CANCELED = "Canceled"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    UNAVAILABLE = "Unavailable"
    ABORTED = "Aborted"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    INVALID_ARGUMENT = "InvalidArgument"
    INTERNAL = "Internal"
    NOT_GRPC = ""


UNDECIDED = frozenset(
    {
        DriverCode.CANCELED,
        DriverCode.DEADLINE_EXCEEDED,
        DriverCode.UNAVAILABLE,
        DriverCode.ABORTED,
        DriverCode.NOT_GRPC,
    }
)
"""Codes after which the driver may still be at work."""
NO_SELECTOR = "claim Selector is not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A volume. Without a size it is as large as was asked."""

    handle: str
    bytes: int = 0
    topologies: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverRefusal:
    code: DriverCode
    message: str
    again_at: int | None = None
    """When there is use in asking again, where the driver knows."""


class Next(StrEnum):
    DONE = "done"
    """There is a volume that will do."""
    FINISHED = "finished"
    """There is none, and none will come of this call; a new one may be made later."""
    BACKGROUND = "in background"
    """There may be one: the same call is made until it has an end, even if the claim is gone."""
    RESCHEDULE = "reschedule"
    """There is none, and the pod should look for another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverVerdict:
    next: Next
    why: str = ""
    infeasible: bool = False
    """Wrong as it was asked: not worth trying soon, unless the class is another one."""
    delete: bool = False
    """What was made is to be deleted before the call is made again."""


def judge(answer: Created | DriverRefusal, *, asked: int, topology: bool, node_selected: bool) -> DriverVerdict:
    """`topology`: the driver knows of it; `node_selected`: the claim has a node that can be given back."""
    if isinstance(answer, Created):
        if 0 < answer.bytes < asked:
            why = f"the driver made a volume of {answer.bytes} bytes where {asked} were asked for"
            return DriverVerdict(next=Next.BACKGROUND, why=why, delete=True)
        return DriverVerdict(next=Next.DONE)
    why = f"{answer.code}: {answer.message}" if answer.code else answer.message
    if answer.code in UNDECIDED:
        return DriverVerdict(next=Next.BACKGROUND, why=why)
    if answer.code is DriverCode.RESOURCE_EXHAUSTED and topology and node_selected:
        return DriverVerdict(next=Next.RESCHEDULE, why=why)
    return DriverVerdict(next=Next.FINISHED, why=why, infeasible=answer.code is DriverCode.INVALID_ARGUMENT)
