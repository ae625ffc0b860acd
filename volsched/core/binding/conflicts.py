"""What makes a plan worthless between its decision and its commit: write skew between schedulers.

A plan touches its volumes, claims and pod, and their versions are checked one by one. But it was made on more:
what runs on the node and how much room a capacity object has. Two schedulers that each see the last free slot
touch different pods and would both succeed; so what others have appended since the decision is looked at too.
"""

from collections.abc import Callable, Collection

import orjson

from volsched.core.binding.planning import Plan
from volsched.events.envelope import Event
from volsched.events.streams import noun_and_key


def outdated(plan: Plan) -> Callable[[Event], str | None]:
    """Asks an event of another writer whether, and why, the plan must be decided again."""
    capacities = {leg.capacity for leg in plan.legs if leg.capacity is not None}
    node = plan.node

    def why(event: Event) -> str | None:
        noun, key = noun_and_key(event.stream)
        if noun == "node" and key == node:
            return f'node "{node}" has changed' if _matters(event) else None
        if noun == "csinode" and key == node:
            return f'the drivers of node "{node}" have changed'
        if noun == "capacity" and key in capacities:
            return f'capacity object "{key}" has changed'
        if noun == "pod":
            return f'pod "{key}" came to node "{node}"' if _arrives(event, node) else None
        if noun == "attachment":
            return f'a volume was attached to node "{node}"' if node in event.data else None
        if event.type == "BindingPlanned" and capacities:
            return "another plan reserved of the same capacity" if _reserves(event, capacities) else None
        return None

    return why


def _matters(event: Event) -> bool:
    """Heartbeats do not: they are conditions in the status, and nothing else."""
    patch = orjson.loads(event.data).get("patch", {})
    return set(patch) != {"status"} or set(patch["status"]) != {"conditions"}


def _arrives(event: Event, node: str) -> bool:
    """A pod that was assumed there arrives a second time when it is bound; that was counted already."""
    if event.binding is not None and event.type != "PodAssumed":
        return False
    patch = orjson.loads(event.data).get("patch") or {}
    return bool((patch.get("spec") or {}).get("nodeName") == node)


def _reserves(event: Event, capacities: Collection[str]) -> bool:
    return any(leg.get("capacity") in capacities for leg in orjson.loads(event.data)["legs"])
