"""Who has read the history over HTTP, and what they asked."""

from itertools import islice

import orjson
from sqlalchemy import Connection

from volsched.log.events.streams import AUDIT_READS
from volsched.log.reads.event_audit import Window, stream_backwards
from volsched.questions.audit.answers import Answer, Item, number_in, time_text

NEWEST = 2**62


def reads(connection: Connection, within: Window, *, after: str | None, limit: int) -> Answer:
    """The latest first. Pages go on by version: each read is one of a single stream."""
    start = NEWEST if after is None else number_in(after) - 1
    events = stream_backwards(connection, AUDIT_READS, version=start)
    wanted = (it for it in events if it.position <= within.last)
    found = [it for it in islice(wanted, limit + 1) if it.position >= within.first]
    items: list[Item] = []
    for it in found[:limit]:
        data = orjson.loads(it.data)
        items.append(
            {
                "position": it.position,
                "at": time_text(it.at),
                "actor": it.actor,
                "question": data["question"],
                "client": data.get("client"),
            }
        )
    return Answer(items=items, after=str(found[limit - 1].version) if len(found) > limit else None)
