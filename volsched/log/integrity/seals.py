"""What the log says of events that were redacted: where a hash is not that of the row, a seal must be."""

from collections.abc import Mapping

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.events.redaction import REDACTIONS, seals_in

Seals = Mapping[int, bytes]
"""Position of a redacted event → its seal."""
NO_SEALS: Seals = {}


def read_seals(connection: Connection) -> dict[int, bytes]:
    """Of all events that are still here. An event that was redacted twice has its last seal."""
    events = tables.events
    said = select(events.c.data).where(events.c.stream == REDACTIONS).order_by(events.c.version)
    seals: dict[int, bytes] = {}
    for data in connection.execute(said).scalars():
        seals |= seals_in(data)
    return seals
