"""The bodies that are sent to us, as the OpenAPI document describes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from volsched.questions.registry import API_VERSION
from volsched.scheduling.pod_reservations import DEFAULT_SECONDS, MOST_SECONDS

LONGEST_NAME = 253
LONGEST_REASON = 1_000
MOST_MANIFESTS = 5_000
MOST_NAMES = 1_000
MOST_ANCHORS = 1_000
_TEXT = r"^[^\x00-\x1f\x7f]*$"


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReservationSpec(Body):
    """What is to be held, and for how long."""

    pod: str = Field(min_length=1, max_length=LONGEST_NAME, pattern=_TEXT, description="A pod of the namespace.")
    podUID: str = Field(default="", max_length=LONGEST_NAME, pattern=_TEXT)  # noqa: N815 - as Kubernetes spells it
    node: str = Field(
        default="", max_length=LONGEST_NAME, pattern=_TEXT, description="Only this node; else the best."
    )
    ttlSeconds: int = Field(default=DEFAULT_SECONDS, ge=1, le=MOST_SECONDS)  # noqa: N815


class Reservation(Body):
    apiVersion: str = Field(default=API_VERSION, description=f"{API_VERSION}, if anything.")  # noqa: N815
    kind: str = "Reservation"
    metadata: dict[str, Any] = Field(default_factory=dict)
    spec: ReservationSpec
    status: dict[str, Any] = Field(default_factory=dict, description="Ours: what is sent of it does not count.")


class Lease(Body):
    ttlSeconds: int = Field(ge=1, le=MOST_SECONDS)  # noqa: N815


class ReservationPatch(Body):
    """A merge patch. Only the lease can be changed: from now on it is so long."""

    spec: Lease


class Renewal(Body):
    ttlSeconds: int = Field(default=DEFAULT_SECONDS, ge=1, le=MOST_SECONDS)  # noqa: N815


class Reason(Body):
    """Why; kept with what is done."""

    reason: str = Field(default="", max_length=LONGEST_REASON, pattern=_TEXT)


class Explain(Body):
    pod: str = Field(
        min_length=1,
        max_length=2 * LONGEST_NAME,
        pattern=_TEXT,
        description="NAMESPACE/NAME, or one in `default`.",
    )
    node: str = Field(default="", max_length=LONGEST_NAME, pattern=_TEXT, description="Look at this node only.")
    profile: Literal["volsched", "parity"] | None = Field(
        default=None, description="How to decide; else as served."
    )
    manifests: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_MANIFESTS)
    alone: bool = Field(default=False, description="Look at the manifests alone, and not at the store.")


Names = list[str]


class Simulate(Body):
    drain: Names = Field(default_factory=list, max_length=MOST_NAMES)
    loseNodes: Names = Field(default_factory=list, max_length=MOST_NAMES)  # noqa: N815
    loseZones: Names = Field(default_factory=list, max_length=MOST_NAMES)  # noqa: N815
    add: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_MANIFESTS)
    delete: Names = Field(
        default_factory=list, max_length=MOST_NAMES, description="KIND/NAME, KIND/NAMESPACE/NAME."
    )


class Verify(Body):
    anchor: str = Field(
        default="", max_length=LONGEST_REASON, description="A line that `verify --write-anchor` wrote."
    )
    anchors: list[Annotated[str, Field(max_length=LONGEST_REASON)]] = Field(
        default_factory=list, max_length=MOST_ANCHORS, description="More such lines; signatures are not looked at."
    )
