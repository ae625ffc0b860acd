"""The types of the map and of the timeline; the OpenAPI document and the console's types come from them."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class StateCount(TypedDict):
    volumes: int
    bytes: int


Counts = dict[str, StateCount]
"""State → the number of volumes in it, and their capacity."""


class MapGroup(TypedDict):
    path: list[str]
    """The values of the labels that nodes are grouped by; empty: everything."""
    nodes: int
    pods: int
    states: Counts
    own: Counts
    """The part of `states` that belongs to no single node and to no smaller group."""


class MapNode(TypedDict):
    name: str
    path: list[str]
    pods: int
    schedulable: bool
    states: Counts


class MapVolume(TypedDict):
    name: str
    path: list[str]
    node: str | None
    state: str
    bytes: int
    storageClass: str
    claim: str | None
    pods: list[str]
    data: str | None
    """The claim's data state: Clean or Dirty; None: unknown."""
    binding: str | None
    """The open binding that has assumed the volume."""
    reached: bool


class MapClass(TypedDict):
    storageClass: str
    group: str
    """The first part of the path: the widest group."""
    states: Counts
    requested: int
    """Bytes that the claims of these volumes request, which may be less than their capacity."""


class WaitingPod(TypedDict):
    pod: str
    reason: str
    claims: list[str]


class VolumeMap(TypedDict):
    apiVersion: str
    kind: Literal["VolumeMap"]
    position: int
    head: int
    """The log's last position."""
    at: str | None
    by: list[str]
    labels: list[str]
    """Labels by which nodes can be grouped."""
    classes: list[MapClass]
    groups: list[MapGroup]
    nodes: list[MapNode] | None
    """The nodes; None: too many to list; ask within a group."""
    volumes: list[MapVolume] | None
    waiting: list[WaitingPod]
    """Some of the pods without a node."""
    waitingPods: int


class FailedBinding(TypedDict):
    at: int
    binding: str
    pod: str
    node: str
    reason: str | None


class LogTimeline(TypedDict):
    apiVersion: str
    kind: Literal["LogTimeline"]
    first: int
    last: int
    head: int
    events: int
    points: list[list[int]]
    """Positions and their times in microseconds: how the log grew."""
    failures: list[FailedBinding]
    """The latest bindings that were rolled back."""
    heardAt: NotRequired[int]
    """For an observed cluster: the oldest time at which a kind was last observed."""
