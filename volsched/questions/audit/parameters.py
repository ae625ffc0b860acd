"""Parameters of the audit questions."""

from typing import Annotated, ClassVar

from pydantic import Field

from volsched.questions.audit.decisions import LAST_BINDINGS
from volsched.questions.parameters import (
    MOST,
    AsOf,
    Body,
    NodeParameters,
    ObjectParameters,
    OlderThan,
    PageParameters,
    Parameters,
    PodParameters,
    Since,
    Spelling,
    Until,
    VolumeParameters,
    WindowParameters,
    argument,
    option,
)

TREE = 200
LONGEST_ANCHOR = 1_000
MOST_ANCHORS = 1_000
MOST_BINDINGS = 100_000
MOST_EXPORTED = 50_000
"""Maximum number of events in one answer; more are in the next range."""
WhyNode = Annotated[
    str | None, option("--node"), Field(description="Also say why this node was chosen, or why not.")
]


class VolumeWindow(WindowParameters, VolumeParameters):
    pass


class ObjectWindow(WindowParameters, ObjectParameters):
    pass


class PodWindow(WindowParameters, PodParameters):
    pass


class NodeWindow(WindowParameters, NodeParameters):
    pass


class VolumeAt(VolumeParameters):
    as_of: Annotated[
        str | None,
        option("--at", "--as-of", metavar="TIME", query="asOf"),
        Field(description="When: 2h (ago), a time, or a position."),
    ] = None


class Why(PodParameters):
    """Without a namespace, the name is an attempt's, or that of a pod in `default`."""

    name: Annotated[
        str, argument("POD|ATTEMPT"), Field(description="A pod, or the id of an attempt from `audit attempts`.")
    ]
    node: WhyNode = None
    as_of: AsOf = None
    bare_name: ClassVar[bool] = True


class Cause(Parameters):
    position: Annotated[
        str | None,
        argument("POSITION|ID", optional=True),
        Field(description="The event's position; or the id of a binding or attempt, as logs print it."),
    ] = None
    binding: Annotated[
        str | None,
        Spelling("path", ("--binding",)),
        Field(description="Everything that was done for this binding, instead."),
    ] = None
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST, description="Items of a page, at most.")] = TREE


class InFlightParameters(PageParameters):
    older_than: OlderThan = "0s"
    as_of: AsOf = None


class Latency(Parameters):
    since: Since = None
    until: Until = None
    bindings: Annotated[
        int,
        option("--bindings"),
        Field(ge=1, le=MOST_BINDINGS, description="How many committed bindings to look at, the latest."),
    ] = LAST_BINDINGS


class Orphans(Parameters):
    older_than: OlderThan = "0s"


class ExportParameters(Parameters):
    since: Since = None
    until: Until = None
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST_EXPORTED, description="Events, at most.")] = (
        MOST_EXPORTED
    )


class VerifyParameters(Parameters):
    anchor: Annotated[
        str,
        Spelling("body", ("--anchor",), "FILE|DIR"),
        Field(description="The log must still contain what this anchor, export or directory proves."),
    ] = ""
    anchors: Annotated[tuple[str, ...], Spelling("body", typed=False), Field(description="More anchors.")] = ()


class Verify(Body):
    anchor: str = Field(
        default="", max_length=LONGEST_ANCHOR, description="A line that `verify --write-anchor` wrote."
    )
    anchors: list[Annotated[str, Field(max_length=LONGEST_ANCHOR)]] = Field(
        default_factory=list, max_length=MOST_ANCHORS, description="More such lines; signatures are not checked."
    )
    takes: ClassVar[frozenset[str]] = frozenset({"anchor", "anchors"})
