"""The plugin interface: called once per pod, then per node."""

from collections.abc import Sequence
from typing import Protocol

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Status

MAX_SCORE = 100


class Prepared(Protocol):
    """A plugin's answers about one pod, for one cycle. By default any node fits."""

    def leaves_out(self, node: Node) -> Status:  # noqa: ARG002
        """Whether the node is excluded before any filter runs. In the reference, this is PreFilter's result."""
        return SUCCESS

    def filter(self, node: Node) -> Status:  # noqa: ARG002
        """Whether the pod fits the node. The first plugin that refuses a node gives the reason."""
        return SUCCESS

    def scores(self, nodes: Sequence[Node]) -> Sequence[int]:
        """The score of each of the nodes, 0..100, normalised over all of them.

        The nodes are those that every plugin accepts, whatever volumes they have.
        """
        return [0] * len(nodes)


class Plugin(Protocol):
    """Pure: it reads the snapshot, keeps no state between pods, and uses neither clock nor randomness."""

    @property
    def name(self) -> str:
        """The name that users see in reasons and in the configuration."""

    def prefilter(self, snapshot: Snapshot, pod: Pod) -> tuple[Status, Prepared | None]:
        """Called once per cycle. Skip: the plugin has no constraint for the pod. A refusal excludes all nodes."""


def normalised(raw: Sequence[int]) -> list[int]:
    """Scale scores so that the highest is 100."""
    most = max(raw, default=0)
    return [MAX_SCORE * score // most if most else 0 for score in raw]


def normalised_between(raw: Sequence[int]) -> list[int]:
    """Scale scores so that the highest is 100 and the lowest 0. The reference's floats sometimes lose a point."""
    most, least = max(raw, default=0), min(raw, default=0)
    return [MAX_SCORE * (score - least) // (most - least) if most > least else 0 for score in raw]
