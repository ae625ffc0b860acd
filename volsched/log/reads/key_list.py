"""Names of objects for shell completion: no manifest is read."""

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.events.streams import BINDING
from volsched.log.rows import VIEWS


def keys_beginning(connection: Connection, noun: str, start: str, *, limit: int) -> list[str]:
    """Keys of living objects, or ids of bindings and attempts, with this prefix; in order."""
    if noun in VIEWS:
        column = VIEWS[noun][0].c.key
    else:
        column = (tables.bindings if noun == BINDING else tables.attempts).c.id
    query = select(column).where(column.startswith(start, autoescape=True)).order_by(column)
    return [str(it) for it in connection.execute(query.limit(limit)).scalars()]
