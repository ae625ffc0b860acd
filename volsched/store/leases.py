"""Leases with epochs: who may act in an exclusive role, and how one who no longer may is kept from acting.

The epoch is the safety and time is only the liveness. A command given under a lease carries its epoch
(`Command.lease`), which the transaction compares under the head lock; every change of holder raises it. Acquiring
takes the head lock too: otherwise a writer could find the old epoch, the lease could change hands, the new holder
could read the log, and only then would the old holder's events be committed. Under one lock, whatever a deposed
holder appended lies before the acquisition, and nothing of its comes after.

`until` tells others when they may take over, and that is all. A holder whose time is up and whom nobody replaced
can go on appending: nobody else acts, clocks of two machines never agree anyway, and refusing it would only turn a
slow step into a lost one. Rejected: checking `until` at the append; it depends on clocks and makes nothing safer.

A holder is one run of one process: an id made at its start, not a host's name. One that came back under its old
name would share the epoch with the run before, which may not be quite dead.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from volsched.store import tables
from volsched.store.batch import lock_head
from volsched.store.commands import LeaseProof
from volsched.store.database import Database

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

    @property
    def proof(self) -> LeaseProof:
        """What a command under this lease carries."""
        return LeaseProof(self.name, self.epoch)


def acquire(database: Database, *, name: str, holder: str, now: int, ttl: int) -> Lease | None:
    """The lease if it is free, has run out, or is ours already (its epoch stays); None while another holds it."""
    if holder == NOBODY:
        raise ValueError("a lease needs a holder with a name")
    with database.write() as connection:
        lock_head(database, connection)
        found = _read(connection, name)
        if found is None:
            lease = Lease(name=name, holder=holder, epoch=1, until=now + ttl)
            connection.execute(insert(leases).values(name=name, holder=holder, epoch=1, until=lease.until))
            return lease
        if found.holder not in (holder, NOBODY) and found.until >= now:
            return None
        epoch = found.epoch if found.holder == holder else found.epoch + 1
        return _write(connection, Lease(name=name, holder=holder, epoch=epoch, until=now + ttl))


def renew(database: Database, lease: Lease, *, now: int, ttl: int) -> Lease | None:
    """The lease for longer; None if it was lost. One that ran out and that nobody took is not lost."""
    with database.write() as connection:
        lock_head(database, connection)
        if not _is_held(connection, lease):
            return None
        return _write(connection, Lease(name=lease.name, holder=lease.holder, epoch=lease.epoch, until=now + ttl))


def release(database: Database, lease: Lease) -> bool:
    """Give the lease up, so that another need not wait; False if it was lost before.

    The row stays and its epoch grows: commands of ours that are still under way fail at once, and no later holder
    can be given an epoch that was somebody's already.
    """
    with database.write() as connection:
        lock_head(database, connection)
        held = _is_held(connection, lease)
        if held:
            _write(connection, Lease(name=lease.name, holder=NOBODY, epoch=lease.epoch + 1, until=0))
    return held


def current(database: Database, *, name: str) -> Lease | None:
    """Who holds the lease, perhaps beyond its time; None if nobody does."""
    with database.read() as connection:
        found = _read(connection, name)
    return None if found is None or found.holder == NOBODY else found


def _read(connection: Connection, name: str) -> Lease | None:
    row = connection.execute(_NAMED, {"named": name}).first()
    return None if row is None else Lease(name=row.name, holder=row.holder, epoch=row.epoch, until=row.until)


def _is_held(connection: Connection, lease: Lease) -> bool:
    found = _read(connection, lease.name)
    return found is not None and (found.holder, found.epoch) == (lease.holder, lease.epoch)


def _write(connection: Connection, lease: Lease) -> Lease:
    changed = {"named": lease.name, "holder": lease.holder, "epoch": lease.epoch, "until": lease.until}
    connection.execute(_CHANGED, changed)
    return lease
