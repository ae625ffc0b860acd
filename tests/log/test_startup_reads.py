"""Starting from the views: the same states that the log folds to, and a refusal where head and log disagree."""

import pytest
from sqlalchemy import delete, update

from tests.support.store_samples import append, change_volume, create_volume, delete_volume, must, plan
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.errors import IntegrityBrokenError
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import BindingState, ObjectState
from volsched.log.reads.startup import load_world


def test_objects_and_open_bindings_are_loaded(database: Database) -> None:
    must(database, create_volume("a"), create_volume("b"), create_volume("c"), delete_volume("c"))
    must(database, plan("b1", "a", claim="db/1"), plan("b2", "b", claim="db/2"))
    over = {"state": "committed", "open": False}
    leg = {"leg": 0, "state": "bound", "open": False}
    must(
        database,
        append(
            NewEvent(stream="binding/b1", type="LegMoved", data=leg),
            NewEvent(stream="binding/b1", type="BindingMoved", data=over),
        ),
        change_volume("a", {"status": {"phase": "Bound"}}),
    )
    with database.read() as connection:
        world = load_world(connection)
    assert world.position == 11
    assert set(world.states) == {"volume/a", "volume/b", "binding/b2"}
    volume, binding = world.states["volume/b"], world.states["binding/b2"]
    assert isinstance(volume, ObjectState)
    assert volume.assumed is not None
    assert isinstance(binding, BindingState)
    assert [leg.volume for leg in binding.legs] == ["b"]


def test_an_empty_store_is_a_world(database: Database) -> None:
    with database.read() as connection:
        assert load_world(connection).states == {}


@pytest.mark.parametrize("tampering", ["cut", "head"])
def test_a_head_that_is_not_the_logs_end_is_refused(database: Database, tampering: str) -> None:
    must(database, create_volume("a"), create_volume("b"))
    with database.engine.connect() as connection, connection.begin():
        if tampering == "cut":
            connection.execute(delete(tables.events).where(tables.events.c.position == 2))
        else:
            connection.execute(update(tables.log_head).values(hash=bytes(32)))
    with database.read() as connection, pytest.raises(IntegrityBrokenError, match="volsched verify"):
        load_world(connection)
