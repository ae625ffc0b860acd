"""A writer that freezes in the middle of a transaction holds up the others for a while, and not for ever."""

import pytest

from tests.support.store_samples import create_volume, must
from volsched.log.batch import lock_head
from volsched.log.database import Database, open_database
from volsched.log.dialects import postgres
from volsched.log.errors import ConnectionLostError
from volsched.log.reads.tail import read_head

pytestmark = pytest.mark.parametrize("url", ["postgres"], indirect=True)


def test_a_frozen_writer_loses_the_head_row_and_can_commit_nothing(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ABANDONED_AFTER_MS", 500)
    frozen = open_database(url)

    def write_slowly() -> None:
        with frozen.write() as connection:
            lock_head(frozen, connection)
            # Waits for the head row, which the server takes away from the one that has it.
            must(database, create_volume("v1"))
            frozen.dialect.move_head(connection, 100, b"\0" * 32, 0)

    with pytest.raises(ConnectionLostError):
        write_slowly()
    with database.read() as read:
        assert read_head(read).position == 1
    # Its next transaction is like any other's.
    must(frozen, create_volume("v2"))
    frozen.close()
