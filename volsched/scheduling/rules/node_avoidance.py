"""Nodes that turned a pod away: not tried again for a while, unless something about them has changed."""

from collections.abc import Callable, Mapping
from typing import Any

from volsched.kube.manifest import annotations, metadata, status
from volsched.log.events.decision import States
from volsched.log.events.fold import State
from volsched.log.events.object_states import living

REJECTED_NODES = "scheduling.volumes/rejected-nodes"
NODE_REJECTED = "NodeRejected"
AVOID_SECONDS = 300
PREVIOUSLY_REJECTED = "node(s) previously rejected the pod"


def nodes_to_avoid(
    pod: str,
    states: States | Mapping[str, State],
    *,
    since: str,
    changed_at: Callable[[str], int] | None = None,
) -> frozenset[str]:
    """The nodes that rejected the pod after `since` (RFC 3339, so that text compares as time does).

    A node that has changed, or whose list of drivers has, after the pod was turned away may decide otherwise. One
    that was made after that is another node, whatever its name.

    `changed_at`: the position at which something about a node last changed that a decision looks at. Whoever has
    not followed the log does not know, and takes every write for a change, heartbeats too.
    """
    held = living(states, f"pod/{pod}")
    if held is None or held.manifest is None:
        return frozenset()
    named = annotations(held.manifest).get(REJECTED_NODES, "")
    if not named:
        return frozenset()
    last = _turned_away_at(status(held.manifest).get("conditions"))
    if last <= since:
        return frozenset()
    return frozenset(
        node
        for node in named.split(",")
        if (_written_at(node, states) if changed_at is None else changed_at(node)) <= held.rv
        and not _made_after(node, last, states)
    )


def _turned_away_at(conditions: Any) -> str:
    """When a node last did so; conditions are read as somebody left them."""
    told = [it for it in conditions if isinstance(it, dict)] if isinstance(conditions, list) else []
    times = (str(it.get("lastTransitionTime", "")) for it in told if it.get("reason") == NODE_REJECTED)
    return max(times, default="")


def _written_at(node: str, states: States | Mapping[str, State]) -> int:
    found = (living(states, f"node/{node}"), living(states, f"csinode/{node}"))
    return max((state.rv for state in found if state is not None), default=0)


def _made_after(node: str, time: str, states: States | Mapping[str, State]) -> bool:
    found = living(states, f"node/{node}")
    return found is not None and str(metadata(found.manifest or {}).get("creationTimestamp", "")) > time
