"""What a process remembers of its own transactions is believed only as far as the log agrees."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.extent import extended, extent
from tests.support.store_samples import NOW, change_volume, create_volume, delete_volume, must
from volsched.log import database as recent_states
from volsched.log.commands import Command
from volsched.log.database import Database, open_database
from volsched.log.events.fold import NOTHING, Decision, ObjectState, States
from volsched.log.integrity.verify import verify
from volsched.log.transaction import execute
from volsched.runtime import fault_points

pytestmark = extended

NAMES = ("a", "b", "c")


@pytest.fixture
def other(url: str, database: Database) -> Iterator[Database]:  # noqa: ARG001 - it makes the store
    """Another process's way to the same store."""
    opened = open_database(url)
    yield opened
    opened.close()


def seen_by(database: Database, name: str) -> str | None:
    """The phase in which a command of this process finds the volume."""
    found: list[str | None] = []

    def decide(states: States) -> Decision:
        state = states.get(f"volume/{name}")
        held = state.manifest if isinstance(state, ObjectState) else None
        found.append(None if held is None else held["status"]["phase"])
        return NOTHING

    must(database, Command(actor="look", streams=(f"volume/{name}",), decide=decide))
    return found[0]


def phase(name: str, value: str) -> Command:
    return change_volume(name, {"status": {"phase": value}})


def test_what_another_process_wrote_is_seen(database: Database, other: Database) -> None:
    must(database, create_volume("a"))
    must(other, phase("a", "Bound"))
    assert seen_by(database, "a") == "Bound"


def test_what_another_process_deleted_is_gone(database: Database, other: Database) -> None:
    must(database, create_volume("a"))
    must(other, delete_volume("a"))
    assert seen_by(database, "a") is None
    must(database, create_volume("a"))
    assert seen_by(other, "a") == "Available"


def test_a_transaction_that_was_rolled_back_is_not_remembered(database: Database) -> None:
    must(database, create_volume("a"))
    _crashing(lambda: execute(database, [phase("a", "Failed")], now=NOW))
    assert seen_by(database, "a") == "Available"


def test_not_even_where_the_log_has_come_as_far_meanwhile(database: Database, other: Database) -> None:
    must(database, create_volume("a"), create_volume("b"))
    _crashing(lambda: execute(database, [phase("a", "Failed")], now=NOW))
    must(other, phase("b", "Released"))
    assert seen_by(database, "a") == "Available"


def test_a_process_far_behind_begins_anew(
    database: Database, other: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_states, "MOST_BEHIND", 2)
    must(database, create_volume("a"))
    must(other, create_volume("b"), create_volume("c"), phase("a", "Bound"), phase("b", "Failed"))
    assert seen_by(database, "a") == "Bound"


def test_only_so_much_is_remembered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_states, "MOST", 2)
    must(database, *(create_volume(name) for name in NAMES))
    assert [database.recent.get(f"volume/{name}") is not None for name in NAMES] == [False, True, True]
    assert seen_by(database, "a") == "Available"


@settings(max_examples=extent(10, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_two_processes_and_crashes_never_disagree(
    database: Database, other: Database, data: st.DataObject
) -> None:
    """Whatever one of them does or fails to do, both find what the store says."""
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        who = data.draw(st.sampled_from([database, other]))
        name = data.draw(st.sampled_from(NAMES))
        act = data.draw(st.sampled_from([create_volume, delete_volume, lambda it: phase(it, "Bound")]))
        if data.draw(st.booleans(), "crashes"):
            _crashing(lambda who=who, act=act, name=name: execute(who, [act(name)], now=NOW))  # type: ignore[misc]
        else:
            execute(who, [act(name)], now=NOW)
        assert [seen_by(database, it) for it in NAMES] == [seen_by(other, it) for it in NAMES]
    assert verify(database).ok


def _crashing(act: Callable[[], object]) -> None:
    fault_points.arm(fault_points.Fault("commit.before", _break), drill=True)
    try:
        act()
    except fault_points.FaultError:
        pass
    finally:
        fault_points.arm(None, drill=True)


def _break() -> None:
    raise fault_points.FaultError("broken here")
