"""What makes a plan worthless between its decision and its commit: write skew between schedulers.

A plan touches its volumes, claims and pod, and their versions are checked one by one. But it was made on more:
what runs on the node, how much room a capacity object has, that no other volume names the claim, and, where pods
say near whom they want to be, what runs elsewhere. Two schedulers that each see the last free slot touch different
pods and would both succeed; so what others have appended since the decision is looked at too.
"""

from collections.abc import Callable, Collection

import orjson

from volsched.binding.rules.plan import Plan
from volsched.kube.meta import SELECTED_NODE_KEYS
from volsched.log.events.envelope import Event
from volsched.log.events.streams import noun_and_key
from volsched.scheduling.rules.attach_limits import TERMINATED
from volsched.scheduling.rules.promised_capacity import PROMISED_ROOM, promised_room

_MOVES = ('"nodeName"', '"labels"', '"deletionTimestamp"', *(f'"{phase}"' for phase in TERMINATED))
"""In the change of a pod: it counts otherwise from then on, to those that mind who is near them."""


def outdated(plan: Plan) -> Callable[[Event], str | None]:
    """Asks an event of another writer whether, and why, the plan must be decided again."""
    here = changed_since(plan.node, {leg.capacity for leg in plan.legs if leg.capacity is not None})
    promised = promised_since({leg.claim for leg in plan.legs if not leg.bound and leg.joins is None})

    def why(event: Event) -> str | None:
        return (
            here(event)
            or promised(event)
            or taken_by_plan(event, plan.exclusive)
            or (_moved_near(event) if plan.minds else None)
            or _kept_away(event)
        )

    return why


def changed_since(node: str, capacities: Collection[str]) -> Callable[[Event], str | None]:
    """Asks an event whether, and why, a decision for this node, with room in these capacity objects, is void."""

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
        if noun == "claim" and capacities and PROMISED_ROOM in event.data:
            return (
                f'claim "{key}" was promised some of the same capacity' if _promises(event, capacities) else None
            )
        if event.type == "BindingPlanned" and capacities:
            return "another plan reserved of the same capacity" if _reserves(event, capacities) else None
        return None

    return why


def promised_since(claims: Collection[str]) -> Callable[[Event], str | None]:
    """Asks an event that is part of no binding whether, and how, one of the claims was promised something."""

    def why(event: Event) -> str | None:
        if event.binding is not None:
            return None
        noun, key = noun_and_key(event.stream)
        if noun == "claim" and key in claims and any(name in event.data for name in SELECTED_NODE_KEYS):
            return f'claim "{key}" was promised to a node'
        if noun == "volume" and '"claimRef"' in event.data:
            claim = _claim_named(event)
            return f'volume "{key}" was given to claim "{claim}"' if claim in claims else None
        return None

    return why


def taken_by_plan(event: Event, claims: Collection[str]) -> str | None:
    """Of claims that one pod, or nobody else, is to have."""
    if event.type != "BindingPlanned":
        return None
    taken = next((claim for claim in claims if f'"claim":"{claim}"' in event.data), None)
    return None if taken is None else f'a pod with claim "{taken}" was planned'


def _claim_named(event: Event) -> str:
    patch = orjson.loads(event.data).get("patch") or {}
    reference = (patch.get("spec") or {}).get("claimRef") or {}
    return f"{reference.get('namespace')}/{reference.get('name')}"


def _matters(event: Event) -> bool:
    """Heartbeats do not, nor what else a node says of itself: of its status only what it has to give is read."""
    patch = orjson.loads(event.data).get("patch", {})
    return set(patch) != {"status"} or "allocatable" in patch["status"]


def _arrives(event: Event, node: str) -> bool:
    """A pod that was assumed there arrives a second time when it is bound; that was counted already."""
    if event.binding is not None and event.type != "PodAssumed":
        return False
    patch = orjson.loads(event.data).get("patch") or {}
    return bool((patch.get("spec") or {}).get("nodeName") == node)


def _moved_near(event: Event) -> str | None:
    """Of whatever domain: which domains count is for the next decision to find out."""
    noun, key = noun_and_key(event.stream)
    if noun == "pod" and _counts_otherwise(event):
        return f'pod "{key}" came, went or changed, and this one minds who runs near it'
    if noun == "node" and _matters(event):
        return f'node "{key}" has changed, and with it who is near whom'
    return None


def _counts_otherwise(event: Event) -> bool:
    """Not a pod that was only created or told something: where there are many, no plan would ever be in time."""
    if event.type in ("PodAssumed", "PodFreed"):
        return True
    if event.binding is not None:
        return False
    if event.type == "PodCreated":
        return '"nodeName"' in event.data
    return event.type != "PodChanged" or any(mark in event.data for mark in _MOVES)


def _kept_away(event: Event) -> str | None:
    """Text is looked at, not the data: this is asked of every event, and seldom true."""
    if event.type == "BindingPlanned" and '"repels":true' in event.data:
        return "a pod was planned that keeps others away from where it runs"
    if event.type == "PodCreated" and '"podAntiAffinity"' in event.data and '"nodeName"' in event.data:
        return f"{event.stream} was put on a node, and keeps others away from where it runs"
    return None


def _promises(event: Event, capacities: Collection[str]) -> bool:
    """Room that a claim was promised without a pod."""
    patch = orjson.loads(event.data).get("patch") or {}
    room = promised_room((patch.get("metadata") or {}).get("annotations") or {})
    return room is not None and room.capacity in capacities


def _reserves(event: Event, capacities: Collection[str]) -> bool:
    return any(leg.get("capacity") in capacities for leg in orjson.loads(event.data)["legs"])
