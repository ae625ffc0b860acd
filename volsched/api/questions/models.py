"""The bodies that are sent to us, as the OpenAPI document describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from volsched.questions.parameters import LONGEST_NAME, PLAIN_TEXT
from volsched.questions.registry import API_VERSION
from volsched.scheduling.pod_reservations import DEFAULT_SECONDS, MOST_SECONDS

LONGEST_REASON = 1_000


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReservationSpec(Body):
    """What is to be reserved, and for how long."""

    pod: str = Field(
        min_length=1, max_length=LONGEST_NAME, pattern=PLAIN_TEXT, description="A pod of the namespace."
    )
    podUID: str = Field(default="", max_length=LONGEST_NAME, pattern=PLAIN_TEXT)  # noqa: N815 - as Kubernetes spells it
    node: str = Field(
        default="",
        max_length=LONGEST_NAME,
        pattern=PLAIN_TEXT,
        description="Only this node; without it, the best one.",
    )
    ttlSeconds: int = Field(default=DEFAULT_SECONDS, ge=1, le=MOST_SECONDS)  # noqa: N815


class Reservation(Body):
    apiVersion: str = Field(default=API_VERSION, description=f"{API_VERSION}, if anything.")  # noqa: N815
    kind: str = "Reservation"
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: ReservationSpec
    status: dict[str, Any] = Field(default_factory=dict, description="Set by the server; ignored in requests.")


class Lease(Body):
    ttlSeconds: int = Field(ge=1, le=MOST_SECONDS)  # noqa: N815


class ReservationPatch(Body):
    """A merge patch. Only the lease can be changed: it ends so many seconds from now."""

    spec: Lease


class Renewal(Body):
    ttlSeconds: int = Field(default=DEFAULT_SECONDS, ge=1, le=MOST_SECONDS)  # noqa: N815


class CertainReason(Body):
    """Why; required."""

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=PLAIN_TEXT)


class Reason(Body):
    """Why; recorded with the action."""

    reason: str = Field(default="", max_length=LONGEST_REASON, pattern=PLAIN_TEXT)
