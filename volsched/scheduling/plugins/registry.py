"""The built-in plugins, in the reference's order, with their weights."""

from dataclasses import dataclass

from volsched.scheduling.plugins.inter_pod_affinity import InterPodAffinity
from volsched.scheduling.plugins.node_plugins import (
    NodeAffinityPlugin,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from volsched.scheduling.plugins.node_resources import NodeResourcesFit
from volsched.scheduling.plugins.plugin import Plugin
from volsched.scheduling.plugins.topology_spread import PodTopologySpread


@dataclass(frozen=True, slots=True)
class Enabled:
    plugin: Plugin
    weight: int = 1


BEFORE_VOLUMES: tuple[Enabled, ...] = (
    Enabled(NodeUnschedulable(), 0),
    Enabled(NodeName(), 0),
    Enabled(TaintToleration(), 3),
    Enabled(NodeAffinityPlugin(), 2),
    Enabled(NodeResourcesFit(), 1),
)
AFTER_VOLUMES: tuple[Enabled, ...] = (
    Enabled(PodTopologySpread(), 2),
    Enabled(InterPodAffinity(), 2),
)
