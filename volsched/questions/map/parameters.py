"""Parameters of the map and of the log's timeline."""

from typing import Annotated

from pydantic import Field

from volsched.kube.meta import ZONE
from volsched.questions.map.volume_state import VolumeState
from volsched.questions.parameters import AsOf, Parameters, Since, Spelling, Until, option

MOST_POINTS = 2_000
POINTS = 600
MOST_DETAIL = 10_000
DETAIL = 3_000
Within = Annotated[
    str | None, Spelling("path", ("--namespace", "-n"), "NS"), Field(description="Only objects of this namespace.")
]


class MapParameters(Parameters):
    namespace: Within = None
    as_of: AsOf = None
    by: Annotated[
        str,
        option("--by"),
        Field(description="Labels of nodes to group by, the widest first, separated by commas."),
    ] = ZONE
    within: Annotated[
        str,
        option("--within"),
        Field(description="Only this group: the values of its labels, separated by slashes."),
    ] = ""
    node: Annotated[str, option("--node"), Field(description="Only this node and its volumes.")] = ""
    class_name: Annotated[
        str | None,
        option("--class", query="class"),
        Field(description="Only volumes of this storage class."),
    ] = None
    state: Annotated[VolumeState | None, option("--state"), Field(description="Only volumes in this state.")] = (
        None
    )
    text: Annotated[
        str,
        option("--text"),
        Field(description="Part of the name of the volume, claim or node."),
    ] = ""
    detail: Annotated[
        int,
        option("--detail"),
        Field(
            ge=0, le=MOST_DETAIL, description="List volumes and nodes one by one if there are no more than this."
        ),
    ] = DETAIL


class TimelineParameters(Parameters):
    namespace: Within = None
    since: Since = None
    until: Until = None
    points: Annotated[
        int, option("--points"), Field(ge=2, le=MOST_POINTS, description="Points of the curve, at most.")
    ] = POINTS
