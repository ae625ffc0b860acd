"""What a plugin is: asked once about a pod, then about nodes."""

from collections.abc import Sequence
from typing import Protocol

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Status

MAX_SCORE = 100


class Prepared(Protocol):
    """What a plugin has found out about one pod, for one cycle. Unless it says otherwise, any node will do."""

    def leaves_out(self, node: Node) -> Status:  # noqa: ARG002
        """Is the node out of the question before any filter is asked? In the reference, PreFilter's result."""
        return SUCCESS

    def filter(self, node: Node) -> Status:  # noqa: ARG002
        """May the pod go there? The first plugin that refuses a node gives the reason."""
        return SUCCESS

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        """How good each of the nodes is, 0..100, normalised over all of them.

        They are those that every plugin lets pass, whatever volumes they have.
        """
        return [0] * len(nodes)


class Plugin(Protocol):
    """Pure: it reads the snapshot, keeps nothing from pod to pod, and knows neither clock nor chance."""

    @property
    def name(self) -> str:
        """As users meet it, in reasons and in the configuration."""

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        """Once per cycle. Skip: the plugin has nothing to say about the pod; a refusal keeps it off every node."""


def normalised(raw: Sequence[int]) -> list[int]:
    """The most gets 100, the others their share of it."""
    most = max(raw, default=0)
    return [MAX_SCORE * score // most if most else 0 for score in raw]


def normalised_between(raw: Sequence[int]) -> list[int]:
    """The most gets 100, the least 0. In whole numbers: the reference's floats lose a point now and then."""
    most, least = max(raw, default=0), min(raw, default=0)
    return [MAX_SCORE * (score - least) // (most - least) if most > least else 0 for score in raw]
