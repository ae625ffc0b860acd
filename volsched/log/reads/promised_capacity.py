"""What ended bindings took of capacity objects a short while ago: it may not be published yet.

They are found by the times of the log, so that a start costs what happened lately and not what ever happened.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from volsched.log import tables

events, legs, bindings = tables.events, tables.binding_legs, tables.bindings


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    binding: str
    claim: str
    claim_uid: str
    capacity: str
    bytes: int
    appeared_at: int | None
    """The position at which the claim's volume was created; None: there is none yet."""


def promised_since(connection: Connection, time: int) -> list[Promised]:
    """Of bindings that ended then or later, the last first."""
    moved = select(events.c.binding).where(events.c.at >= time, events.c.type == "BindingMoved")
    asked = (
        select(legs)
        .join(bindings, bindings.c.id == legs.c.binding)
        .where(bindings.c.id.in_(moved), ~bindings.c.open, legs.c.capacity.is_not(None))
        .order_by(bindings.c.ended_at.desc(), legs.c.binding, legs.c.leg)
    )
    return [
        Promised(
            binding=row.binding,
            claim=row.claim,
            claim_uid=row.claim_uid,
            capacity=row.capacity,
            bytes=row.bytes or 0,
            appeared_at=None if row.volume is None else _created_at(connection, row.volume),
        )
        for row in connection.execute(asked).all()
    ]


def _created_at(connection: Connection, volume: str) -> int | None:
    asked = select(func.max(events.c.position)).where(
        events.c.stream == f"volume/{volume}", events.c.type == "VolumeCreated"
    )
    found = connection.execute(asked).scalar()
    return None if found is None else int(found)
