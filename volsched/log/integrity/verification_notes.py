"""The time and result of the last verification of the whole log, stored beside the log for all processes."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.batch import Head
from volsched.log.database import Database

SOUND, UNSOUND = "verified", "verified-unsound"
"""Names of checkpoints: the last verification of either outcome."""


@dataclass(frozen=True, slots=True)
class VerificationNote:
    position: int
    at: int
    ok: bool


def note_verification(database: Database, head: Head, *, now: int, ok: bool) -> None:
    with database.write_beside_log() as connection:
        row = (SOUND if ok else UNSOUND, head.position, head.hash, now)
        database.dialect.upsert(connection, tables.checkpoints, [row])


def verification_note(connection: Connection) -> VerificationNote | None:
    """The latest note; None where the log was never verified."""
    kept = tables.checkpoints
    query = select(kept.c.name, kept.c.position, kept.c.at).where(kept.c.name.in_((SOUND, UNSOUND)))
    notes = [VerificationNote(position, at, name == SOUND) for name, position, at in connection.execute(query)]
    return max(notes, key=lambda it: it.at, default=None)
