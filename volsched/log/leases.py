"""Leases with epochs: who may act in an exclusive role, and how one who no longer may is kept from acting.

The epoch is the safety and time is only the liveness. A command given under a lease carries its epoch
(`Command.lease`), which the transaction compares under the head lock; every change of holder raises it. Acquiring
takes the head lock too: otherwise a writer could find the old epoch, the lease could change hands, the new holder
could read the log, and only then would the old holder's events be committed. Under one lock, whatever a deposed
holder appended lies before the acquisition, and nothing of its comes after.

`until` tells others when they may take over, and that is all. A holder whose time is up and whom nobody replaced
can go on appending: nobody else acts, clocks of two machines never agree anyway, and refusing it would only turn a
slow step into a lost one. Rejected: checking `until` at the append; it depends on clocks and makes nothing safer.
That a clock was wrong, or that a holder is dead, makes a lease over too (`store.observer`).

A holder is one run of one process: an id made at its start, not a host's name. One that came back under its old
name would share the epoch with the run before, which may not be quite dead.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from volsched.log import tables
from volsched.log.batch import begin_batch, load, lock_head, stage
from volsched.log.batch_writes import write
from volsched.log.commands import LeaseProof
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import LeaseState
from volsched.log.events.streams import LEASE
from volsched.log.lease_observer import LeaseTerm, Over
from volsched.log.reads.tail import NEVER_REACHED, state_as_of

NOBODY = ""

leases = tables.leases
_NAMED = select(leases).where(leases.c.name == bindparam("named"))
_CHANGED = update(leases).where(leases.c.name == bindparam("named"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    name: str
    holder: str
    epoch: int
    until: int
    length: int | None = field(default=None, compare=False)
    """None: it was written by a program that did not say."""
    session: int | None = field(default=None, compare=False)

    @property
    def renewed_at(self) -> int | None:
        """On the holder's clock."""
        return None if self.length is None else self.until - self.length

    @property
    def proof(self) -> LeaseProof:
        """What a command under this lease carries."""
        return LeaseProof(self.name, self.epoch)


@dataclass(frozen=True, slots=True)
class LeaseStanding:
    """A lease as this process sees it."""

    lease: Lease
    over: Over | None
    """Why nobody has to wait for it any more; None: it is held."""
    unchanged_for: int
    """Microseconds for which we have seen no renewal, on our own clock."""

    def age(self, now: int) -> int:
        """Since the last renewal, as far as anybody can tell."""
        renewed = self.lease.renewed_at
        return max(self.unchanged_for, 0 if renewed is None else now - renewed)

    def given_up(self, now: int) -> bool:
        """Over, and nobody has taken it although there was time."""
        return self.over is not None and self.age(now) > 2 * (self.lease.length or 0)


def acquire(database: Database, *, name: str, holder: str, now: int, ttl: int) -> Lease | None:
    """The lease if it is free or over, or is ours already (its epoch stays); None while another holds it."""
    if holder == NOBODY:
        raise ValueError("a lease needs a holder with a name")
    session = database.observer.session.id()
    with database.write() as connection:
        lock_head(database, connection)
        found = _read(connection, name)
        ours = Lease(name=name, holder=holder, epoch=1, until=now + ttl, length=ttl, session=session)
        if found is None:
            # The log of another store may have been imported: no epoch of which it tells is used again.
            told = state_as_of(connection, f"{LEASE}/{name}", position=NEVER_REACHED)
            first = replace(ours, epoch=told.epoch) if isinstance(told, LeaseState) else ours
            connection.execute(insert(leases).values(_row(first)))
            return first
        if found.holder == holder:
            return _write(connection, replace(ours, epoch=found.epoch))
        if found.holder != NOBODY and not _over(database, connection, [found], now=now, ttl=ttl):
            return None
        return _write(connection, replace(ours, epoch=found.epoch + 1))


def renew(database: Database, lease: Lease, *, now: int, ttl: int) -> Lease | None:
    """The lease for longer; None if it was lost. One that ran out and that nobody took is not lost."""
    session = database.observer.session.id()
    with database.write() as connection:
        lock_head(database, connection)
        if not _is_held(connection, lease):
            return None
        return _write(connection, replace(lease, until=now + ttl, length=ttl, session=session))


def release(database: Database, lease: Lease) -> bool:
    """Give the lease up, so that another need not wait; False if it was lost before.

    The row stays and its epoch grows: commands of ours that are still under way fail at once, and no later holder
    can be given an epoch that was somebody's already.
    """
    with database.write() as connection:
        lock_head(database, connection)
        held = _is_held(connection, lease)
        if held:
            _give_up(connection, lease)
    return held


def free(database: Database, name: str, *, actor: str, now: int, reason: str | None = None) -> Lease | None:
    """Take the lease from whoever holds it, as the log then says; answers whose it was, None if nobody's.

    A holder that lives finds out with its next write, which is refused, and may ask for it again like any other.
    """
    with database.write() as connection:
        head = lock_head(database, connection)
        found = _read(connection, name)
        if found is None or found.holder == NOBODY:
            return None
        stream, why = f"{LEASE}/{name}", {} if reason is None else {"reason": reason}
        data = {"holder": found.holder, "epoch": found.epoch, **why}
        batch = begin_batch(database, connection, head, now=now, actor=actor)
        load(database, connection, batch, [stream])
        told = NewEvent(stream=stream, type="LeaseFreed", data=data)
        batch.take(*stage(batch, actor, [told], None), ())
        write(database, connection, batch)
        _give_up(connection, found)
    return found


def current(database: Database, *, name: str) -> Lease | None:
    """Who holds the lease, perhaps beyond its time; None if nobody does."""
    with database.read() as connection:
        found = _read(connection, name)
    return None if found is None or found.holder == NOBODY else found


def standings(database: Database, *, now: int, ttl: int = 0) -> list[LeaseStanding]:
    """All leases that somebody holds, by name; `ttl` is taken for the length of those that do not say it."""
    with database.read() as connection:
        rows = connection.execute(select(leases).where(leases.c.holder != NOBODY).order_by(leases.c.name))
        found = [_lease(row) for row in rows]
        over = _over(database, connection, found, now=now, ttl=ttl)
    unchanged = database.observer.unchanged_for
    return [LeaseStanding(it, over.get(_seen_as(it.name)), unchanged(_seen_as(it.name)) or 0) for it in found]


def _over(
    database: Database, connection: Connection, found: Iterable[Lease], *, now: int, ttl: int
) -> dict[str, Over]:
    terms = {
        _seen_as(it.name): LeaseTerm(
            stamp=(it.holder, it.epoch, it.until),
            until=it.until,
            length=ttl if it.length is None else it.length,
            session=it.session,
        )
        for it in found
    }
    return database.observer.look(connection, terms, now=now)


def _seen_as(name: str) -> str:
    return f"lease/{name}"


def _read(connection: Connection, name: str) -> Lease | None:
    row = connection.execute(_NAMED, {"named": name}).first()
    return None if row is None else _lease(row)


def _lease(row: Row[Any]) -> Lease:
    return Lease(**row._mapping)


def _give_up(connection: Connection, lease: Lease) -> None:
    _write(connection, Lease(name=lease.name, holder=NOBODY, epoch=lease.epoch + 1, until=0))


def _is_held(connection: Connection, lease: Lease) -> bool:
    found = _read(connection, lease.name)
    return found is not None and (found.holder, found.epoch) == (lease.holder, lease.epoch)


def _write(connection: Connection, lease: Lease) -> Lease:
    row = _row(lease)
    connection.execute(_CHANGED, {"named": row.pop("name"), **row})
    return lease


def _row(lease: Lease) -> dict[str, Any]:
    return {column.name: getattr(lease, column.name) for column in leases.columns}
