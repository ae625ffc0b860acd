"""Legs that were written once."""

from tests.stack.work import done, leg_moves, phases, queued
from volsched.log.database import Database
from volsched.log.integrity.verify import verify


def every_leg_was_written_once(database: Database, legs: int) -> None:
    written = leg_moves(database, "written")
    assert len(written) == legs
    assert set(written.values()) == {1}
    assert (done(database), queued(database)) == (legs, 0)
    assert set(phases(database)) == {"waiting"}
    assert verify(database).ok
