"""Room that a claim was promised without a pod: written on the claim itself, as there is no binding to hold it.

It stands beside the node that the claim was promised to, and counts only as long as that is still its node: a
provisioner that gives up takes the node off the claim, and with it the room is free again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from volsched.kube.meta import SELECTED_NODE

PROMISED_ROOM = "volsched.io/promised-room"


class PromisedCapacity(NamedTuple):
    capacity: str
    """The key of a capacity object."""
    bytes: int


def written_room(node: str, room: PromisedCapacity) -> dict[str, str]:
    """As annotations of the claim, beside the selected node."""
    return {PROMISED_ROOM: orjson.dumps({"node": node, "capacity": room.capacity, "bytes": room.bytes}).decode()}


def promised_room(annotations: Mapping[str, str]) -> PromisedCapacity | None:
    """What is written there; people may write anything there, and what is no promise is none."""
    text = annotations.get(PROMISED_ROOM)
    if text is None:
        return None
    try:
        read: Any = orjson.loads(text)
    except ValueError:
        return None
    match read:
        case {"node": str(node), "capacity": str(capacity), "bytes": int(size)} if size > 0:
            return PromisedCapacity(capacity, size) if annotations.get(SELECTED_NODE) == node else None
    return None
