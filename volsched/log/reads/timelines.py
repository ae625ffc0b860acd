"""What the log tells of an object beyond its present state: who bore the name before, what was written when.

Asked seldom, about single objects. Of what was archived only the state at the base is known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import uid
from volsched.log.base import read_base
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_lives import ObjectLife
from volsched.log.reads.tail import read_stream
from volsched.log.snapshots import newest_snapshot


class WrittenField(NamedTuple):
    position: int
    at: int
    value: Any


def lives(connection: Connection, stream: str) -> list[ObjectLife]:
    """All that bore the name, the oldest first."""
    found: list[ObjectLife] = []
    base = newest_snapshot(connection, stream, position=read_base(connection).position)
    if isinstance(base, ObjectState) and base.manifest is not None:
        found.append(ObjectLife(uid(base.manifest), base.rv))
    for event in read_stream(connection, stream):
        if event.type.endswith("Created"):
            found.append(ObjectLife(uid(orjson.loads(event.data)["patch"]), event.position))
        elif event.type.endswith("Deleted") and found:
            found[-1] = found[-1]._replace(ended_at=event.at)
    return found


def last_written(connection: Connection, stream: str, *path: str) -> WrittenField | None:
    """The last event that set or removed the field; None where none did, or only one that is archived."""
    for event in reversed(read_stream(connection, stream)):
        value = orjson.loads(event.data).get("patch")
        for step in path:
            if not isinstance(value, Mapping) or step not in value:
                break
            value = value[step]
        else:
            if not event.type.endswith("Assumed"):
                return WrittenField(event.position, event.at, value)
    return None
