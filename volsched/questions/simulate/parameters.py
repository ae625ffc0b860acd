"""Parameters of `simulate`, for the command line and for a server."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from volsched.questions.parameters import MOST_MANIFESTS, MOST_NAMES, AsOf, Body, Parameters, Spelling

Names = list[str]


class ScenarioParameters(Parameters):
    drain: Annotated[
        Names,
        Spelling("body", ("--drain",), "NODE"),
        Field(default_factory=list, description="Cordon the node and evict its pods."),
    ]
    loseNodes: Annotated[  # noqa: N815 - as the API spells it
        Names,
        Spelling("body", ("--lose-node",), "NODE"),
        Field(default_factory=list, description="Remove the node."),
    ]
    loseZones: Annotated[  # noqa: N815
        Names,
        Spelling("body", ("--lose-zone",), "ZONE"),
        Field(default_factory=list, description="Remove all nodes of the zone."),
    ]
    add: Annotated[
        list[dict[str, Any]],
        Spelling("body", ("--add",), "FILE|DIR|-", files=True),
        Field(default_factory=list, description="Add these objects."),
    ]
    delete: Annotated[
        Names,
        Spelling("body", ("--delete",), "KIND/NAME"),
        Field(default_factory=list, description="Delete the object; pvc/NAMESPACE/NAME if it has a namespace."),
    ]
    as_of: AsOf = None


class Simulate(Body):
    drain: Names = Field(default_factory=list, max_length=MOST_NAMES)
    loseNodes: Names = Field(default_factory=list, max_length=MOST_NAMES)  # noqa: N815
    loseZones: Names = Field(default_factory=list, max_length=MOST_NAMES)  # noqa: N815
    add: list[dict[str, Any]] = Field(default_factory=list, max_length=MOST_MANIFESTS)
    delete: Names = Field(
        default_factory=list, max_length=MOST_NAMES, description="KIND/NAME, KIND/NAMESPACE/NAME."
    )
    takes: ClassVar[frozenset[str]] = frozenset({"drain", "loseNodes", "loseZones", "add", "delete"})
