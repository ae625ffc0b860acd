"""The plugins there are by nature, in the reference's order, with their weights."""

from dataclasses import dataclass

from volsched.core.plugins.interpod import InterPodAffinity
from volsched.core.plugins.node_affinity import NodeAffinity
from volsched.core.plugins.node_name import NodeName
from volsched.core.plugins.plugin import Plugin
from volsched.core.plugins.resources import NodeResourcesFit
from volsched.core.plugins.spread import PodTopologySpread
from volsched.core.plugins.taints import TaintToleration
from volsched.core.plugins.unschedulable import NodeUnschedulable


@dataclass(frozen=True, slots=True)
class Enabled:
    plugin: Plugin
    weight: int = 1


BEFORE_VOLUMES: tuple[Enabled, ...] = (
    Enabled(NodeUnschedulable(), 0),
    Enabled(NodeName(), 0),
    Enabled(TaintToleration(), 3),
    Enabled(NodeAffinity(), 2),
    Enabled(NodeResourcesFit(), 1),
)
AFTER_VOLUMES: tuple[Enabled, ...] = (
    Enabled(PodTopologySpread(), 2),
    Enabled(InterPodAffinity(), 2),
)
