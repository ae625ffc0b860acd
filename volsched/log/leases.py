"""Leases with epochs for exclusive roles, and the Lease objects of clients that elect a leader themselves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from volsched.log import tables
from volsched.log.batch import begin_batch, load, lock_head, stage
from volsched.log.commands import LeaseProof
from volsched.log.commit_listeners import LeaseChange
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import LeaseState, ObjectState
from volsched.log.events.streams import LEASE
from volsched.log.reads.tail import NEVER_REACHED, state_as_of
from volsched.log.sessions import LeaseTerm, Over
from volsched.log.transaction import report, write

# The epoch provides safety; time provides only liveness. A command under a lease carries its epoch
# (`Command.lease`), which the transaction compares under the head lock; every change of holder raises it.
# Acquiring takes the head lock too: otherwise a writer could read the old epoch, the lease could change holders,
# the new holder could read the log, and only then would the old holder's events be committed. Under one lock,
# everything a deposed holder appended precedes the acquisition, and nothing follows it.
#
# `until` only tells other processes when they may take over. A holder whose time is up and that was not replaced
# can continue to append: no other process acts, clocks of two machines never agree anyway, and refusing it would
# only turn a slow step into a lost one. Rejected: checking `until` at the append; it depends on clocks and makes
# nothing safer. A wrong clock or a dead holder ends a lease too (`log.sessions`).
#
# A holder is one run of one process: an id created at its start, not a host's name. A process that came back under
# its old name would share the epoch with its previous run, which may still be alive.

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
    """None: an older program wrote the row without it."""
    session: int | None = field(default=None, compare=False)

    @property
    def renewed_at(self) -> int | None:
        """The time of the last renewal, on the holder's clock."""
        return None if self.length is None else self.until - self.length

    @property
    def proof(self) -> LeaseProof:
        """The proof that a command under this lease carries."""
        return LeaseProof(self.name, self.epoch)


@dataclass(frozen=True, slots=True)
class LeaseStanding:
    """A lease as this process sees it."""

    lease: Lease
    over: Over | None
    """Why other processes need not wait for it any more; None: it is held."""
    unchanged_for: int
    """Microseconds without a renewal, on our own clock."""

    def age(self, now: int) -> int:
        """Microseconds since the last renewal, as far as known."""
        renewed = self.lease.renewed_at
        return max(self.unchanged_for, 0 if renewed is None else now - renewed)

    def given_up(self, now: int) -> bool:
        """Whether the lease is over and has not been taken for a while."""
        return self.over is not None and self.age(now) > 2 * (self.lease.length or 0)


def acquire(database: Database, *, name: str, holder: str, now: int, ttl: int) -> Lease | None:
    """The lease if it is free, over, or ours already (same epoch); None while another process holds it."""
    if holder == NOBODY:
        raise ValueError("a lease needs a holder with a name")
    session = database.observer.session.id()
    ours = Lease(name=name, holder=holder, epoch=1, until=now + ttl, length=ttl, session=session)
    with database.write() as connection:
        head = lock_head(database, connection)
        previous = _read(connection, name)
        if previous is not None and previous.holder == holder:
            return _write(connection, replace(ours, epoch=previous.epoch))
        if previous is None:
            # The log of another store may have been imported: epochs recorded there are never reused.
            recorded = state_as_of(connection, f"{LEASE}/{name}", position=NEVER_REACHED)
            lease = replace(ours, epoch=recorded.epoch) if isinstance(recorded, LeaseState) else ours
            connection.execute(insert(leases).values(_row(lease)))
        elif previous.holder != NOBODY and not _over(database, connection, [previous], now=now, ttl=ttl):
            return None
        else:
            lease = _write(connection, replace(ours, epoch=previous.epoch + 1))
        # It corrects the log's time if a clock was ahead. When idle, the log may get no other write for hours, and
        # servers are not ready while its time is ahead.
        batch = begin_batch(database, connection, head, now=now, actor=holder)
        write(database, connection, batch)
    if batch.events:
        report(database, batch)
    _notify_listeners(database, lease, taken=True, from_holder="" if previous is None else previous.holder)
    return lease


def renew(database: Database, lease: Lease, *, now: int, ttl: int) -> Lease | None:
    """The lease, extended; None if it was lost. One that ran out and was not taken is not lost."""
    session = database.observer.session.id()
    with database.write() as connection:
        lock_head(database, connection)
        if not _is_held(connection, lease):
            return None
        return _write(connection, replace(lease, until=now + ttl, length=ttl, session=session))


def release(database: Database, lease: Lease) -> bool:
    """Release the lease, so that another process need not wait; False if it was lost before.

    The row stays and its epoch grows: our commands still in progress fail at once, and no later holder can get an
    epoch that was used already.
    """
    with database.write() as connection:
        lock_head(database, connection)
        is_ours = _is_held(connection, lease)
        if is_ours:
            _give_up(connection, lease)
    if is_ours:
        _notify_listeners(database, lease, taken=False)
    return is_ours


def free(database: Database, name: str, *, actor: str, now: int, reason: str | None = None) -> Lease | None:
    """Take the lease from its holder and record it in the log; returns the lease taken, None if it was free.

    A live holder learns of it when its next write is refused, and may acquire the lease again like any other.
    """
    with database.write() as connection:
        head = lock_head(database, connection)
        lease = _read(connection, name)
        if lease is None or lease.holder == NOBODY:
            return None
        stream, why = f"{LEASE}/{name}", {} if reason is None else {"reason": reason}
        data = {"holder": lease.holder, "epoch": lease.epoch, **why}
        batch = begin_batch(database, connection, head, now=now, actor=actor)
        load(database, connection, batch, [stream])
        told = NewEvent(stream=stream, type="LeaseFreed", data=data)
        batch.take(*stage(batch, actor, [told], None), ())
        write(database, connection, batch)
        _give_up(connection, lease)
    report(database, batch)
    return lease


def current(database: Database, *, name: str) -> Lease | None:
    """The present lease, even past its time; None if it is free."""
    with database.read() as connection:
        found = _read(connection, name)
    return None if found is None or found.holder == NOBODY else found


def standings(database: Database, *, now: int, ttl: int = 0) -> list[LeaseStanding]:
    """All held leases, by name; `ttl` is the assumed length of those that do not record it."""
    with database.read() as connection:
        rows = connection.execute(select(leases).where(leases.c.holder != NOBODY).order_by(leases.c.name))
        held_leases = [_lease(row) for row in rows]
        over = _over(database, connection, held_leases, now=now, ttl=ttl)
    unchanged = database.observer.unchanged_for
    return [
        LeaseStanding(it, over.get(_observed_name(it.name)), unchanged(_observed_name(it.name)) or 0)
        for it in held_leases
    ]


def _over(
    database: Database, connection: Connection, held_leases: Iterable[Lease], *, now: int, ttl: int
) -> dict[str, Over]:
    terms = {
        _observed_name(it.name): LeaseTerm(
            stamp=(it.holder, it.epoch, it.until),
            until=it.until,
            length=ttl if it.length is None else it.length,
            session=it.session,
        )
        for it in held_leases
    }
    return database.observer.check(connection, terms, now=now)


def _notify_listeners(database: Database, lease: Lease, *, taken: bool, from_holder: str = NOBODY) -> None:
    change = LeaseChange(
        name=lease.name, holder=lease.holder, epoch=lease.epoch, taken=taken, from_holder=from_holder
    )
    for listener in database.listeners:
        listener.lease_changed(change)


def _observed_name(name: str) -> str:
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


# The Lease objects of clients that elect a leader among themselves, such as kube-scheduler.
#
# Beside the log, unlike every other object: each is written every two seconds for as long as its holder lives,
# which would be most of the log's events, and no decision depends on one (docs/decisions has why). A write names
# the version that it replaces, and the database compares it, so two servers of one store cannot both grant a
# lease.

_leases = tables.client_leases


def client_lease(database: Database, key: str) -> ObjectState | None:
    with database.read() as connection:
        row = connection.execute(select(_leases).where(_leases.c.key == key)).first()
    return None if row is None else _state(row.rv, row.manifest)


def client_leases(database: Database, namespace: str | None) -> list[tuple[str, ObjectState]]:
    """The leases of one namespace or of all, in key order. There are as many as clients, so all are scanned."""
    with database.read() as connection:
        rows = connection.execute(select(_leases)).all()
    within = "" if namespace is None else f"{namespace}/"
    found = (row for row in rows if row.key.startswith(within))
    return [(row.key, _state(row.rv, row.manifest)) for row in sorted(found, key=lambda row: row.key)]


def make_client_lease(database: Database, key: str, manifest: Mapping[str, Any], *, rv: int) -> bool:
    """Create the lease; False where one exists already."""
    try:
        with database.write() as connection:
            connection.execute(insert(_leases).values(key=key, rv=rv, manifest=orjson.dumps(manifest).decode()))
    except IntegrityError:
        return False
    return True


def replace_client_lease(
    database: Database, key: str, manifest: Mapping[str, Any], *, expected: int, rv: int
) -> bool:
    """Replace the lease; False where it is no longer at the version `expected`."""
    text = orjson.dumps(manifest).decode()
    query = update(_leases).where(_leases.c.key == key, _leases.c.rv == expected).values(rv=rv, manifest=text)
    with database.write() as connection:
        return connection.execute(query).rowcount == 1


def remove_client_lease(database: Database, key: str, *, expected: int) -> bool:
    with database.write() as connection:
        return (
            connection.execute(delete(_leases).where(_leases.c.key == key, _leases.c.rv == expected)).rowcount == 1
        )


def _state(rv: int, manifest: str) -> ObjectState:
    return ObjectState(1, rv, orjson.loads(manifest))
