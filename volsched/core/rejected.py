"""Nodes that turned a pod away: not tried again for a while, unless something about them has changed."""

from collections.abc import Mapping

from volsched.core.binding.seen import annotations, living, metadata, status
from volsched.core.decision import States
from volsched.core.fold import State

REJECTED_NODES = "scheduling.volumes/rejected-nodes"
NODE_REJECTED = "NodeRejected"
AVOID_SECONDS = 300
PREVIOUSLY_REJECTED = "node(s) previously rejected the pod"


def nodes_to_avoid(pod: str, states: States | Mapping[str, State], *, since: str) -> frozenset[str]:
    """The nodes that rejected the pod after `since` (RFC 3339, so that text compares as time does).

    A node whose object, or whose list of drivers, was written after the pod was turned away may decide otherwise.
    One that was made after that is another node, whatever its name.
    """
    held = living(states, f"pod/{pod}")
    if held is None or held.manifest is None:
        return frozenset()
    named = annotations(held.manifest).get(REJECTED_NODES, "")
    conditions = status(held.manifest).get("conditions", ())
    turned_away = (it.get("lastTransitionTime", "") for it in conditions if it.get("reason") == NODE_REJECTED)
    last = max(turned_away, default="")
    if not named or last <= since:
        return frozenset()
    return frozenset(
        node
        for node in named.split(",")
        if not _changed_since(node, held.rv, states) and not _made_after(node, last, states)
    )


def _changed_since(node: str, rv: int, states: States | Mapping[str, State]) -> bool:
    found = (living(states, f"node/{node}"), living(states, f"csinode/{node}"))
    return any(state is not None and state.rv > rv for state in found)


def _made_after(node: str, time: str, states: States | Mapping[str, State]) -> bool:
    found = living(states, f"node/{node}")
    return found is not None and str(metadata(found.manifest or {}).get("creationTimestamp", "")) > time
