"""The log as a curve over time: how many events there were until when.

Positions are dense, so that the times of a few hundred of them say how many events lie between any two: the cost
follows the number of points, and not the length of the history.
"""

from typing import NamedTuple

from sqlalchemy import Connection, or_, select

from volsched.log import tables
from volsched.log.reads.event_audit import Window

_events = tables.events
OF_NAMESPACES = ("pod", "claim", "notice", "statefulset")
"""Nouns of streams whose keys begin with a namespace."""


class LogPoint(NamedTuple):
    position: int
    at: int


def log_curve(connection: Connection, within: Window, *, most: int) -> list[LogPoint]:
    """Evenly spaced positions of the window with their times, both ends among them."""
    if within.last < within.first:
        return []
    step = max(1, -(-(within.last - within.first + 1) // most))
    wanted = sorted({*range(within.first, within.last + 1, step), within.last})
    query = select(_events.c.position, _events.c.at).where(_events.c.position.in_(wanted))
    return [LogPoint(*row) for row in connection.execute(query.order_by(_events.c.position))]


def namespace_curve(
    connection: Connection, within: Window, namespace: str, *, most: int
) -> tuple[list[LogPoint], int]:
    """The same of the events about objects of a namespace, and how many there are."""
    about = (_events.c.stream.startswith(f"{noun}/{namespace}/", autoescape=True) for noun in OF_NAMESPACES)
    query = (
        select(_events.c.position, _events.c.at)
        .where(or_(*about), _events.c.position.between(within.first, within.last))
        .order_by(_events.c.position)
    )
    points = [LogPoint(*row) for row in connection.execute(query)]
    step = max(1, -(-len(points) // most))
    ends = points[-1:] if points and (len(points) - 1) % step else []
    return points[::step] + ends, len(points)
