"""The log's time does not follow a clock that was ahead for ever, and everything that asks by time goes on."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.extent import extended, extent
from tests.support.log_reads import log
from tests.support.store_samples import NOW, create_volume, must
from volsched.log.base import read_base
from volsched.log.batch import CARRIED_US
from volsched.log.commit_listeners import Commit, LeaseChange
from volsched.log.database import Database
from volsched.log.events.envelope import Redact
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import verify
from volsched.log.leases import acquire, current, free
from volsched.log.reads.event_audit import position_since, window
from volsched.log.reads.tail import last_until, position_at, read_head
from volsched.log.retention.archive import archive
from volsched.log.retention.redaction import SETTLED_AFTER_US, closed_until, redact
from volsched.log.tokens import StoredToken, issue, revoke

pytestmark = extended

SECOND = 1_000_000
HOUR = 3_600 * SECOND
AHEAD = NOW + 2 * HOUR


def ahead_and_back(database: Database) -> None:
    """1 was right, 2 was two hours ahead, 3 is the correction, 4 and 5 are right again."""
    must(database, create_volume("a"), now=NOW)
    must(database, create_volume("b"), now=AHEAD)
    must(database, create_volume("c"), now=NOW + SECOND)
    must(database, create_volume("d"), now=NOW + 2 * SECOND)


def test_what_follows_a_clock_that_was_ahead_is_stamped_right(database: Database) -> None:
    ahead_and_back(database)
    events = log(database)
    assert [event.at - NOW for event in events] == [0, 2 * HOUR, SECOND, SECOND, 2 * SECOND]
    assert (events[2].type, events[2].stream) == ("ClockCorrected", "clock/log")
    assert verify(database).findings == []


def test_whoever_takes_a_lease_sets_it_right_where_nobody_else_writes(database: Database) -> None:
    """All that the clock ahead had begun may be done: servers would not be ready until its time is reached."""
    must(database, create_volume("a"), now=AHEAD)
    assert acquire(database, name="controller", holder="next", now=NOW, ttl=SECOND) is not None
    with database.read() as connection:
        assert read_head(connection).at == NOW
    assert [event.type for event in log(database)][1:] == ["ClockCorrected"]
    assert acquire(database, name="controller", holder="next", now=NOW + SECOND, ttl=SECOND) is not None
    assert len(log(database)) == 2
    assert verify(database).findings == []


def test_what_is_appended_beside_commands_is_reported_too(database: Database) -> None:
    """Log lines and counters follow the commits of their process: leases, tokens and redactions write too."""
    reported: list[str] = []

    class Ears:
        def committed(self, commit: Commit) -> None:
            reported.extend(event.type for event in commit.events)

        def lease_changed(self, change: LeaseChange) -> None:
            pass

    must(database, create_volume("a", actor="cli/apply/alice"), now=AHEAD)
    database.listeners.append(Ears())
    assert acquire(database, name="controller", holder="next", now=NOW, ttl=SECOND) is not None
    assert free(database, "controller", actor="cli/leases/alice", now=NOW) is not None
    token = StoredToken(
        name="ci",
        id="t",
        hash=b"h",
        roles=("viewer",),
        namespaces=None,
        issued_at=NOW,
        issued_by="cli/token/alice",
    )
    issue(database, token)
    assert revoke(database, "ci", actor="cli/token/alice", now=NOW)
    redact(database, until=1, what={Redact.ACTORS}, actor="cli/retention/alice", now=AHEAD + HOUR)
    assert reported == ["ClockCorrected", "LeaseFreed", "TokenIssued", "TokenRevoked", "EventsRedacted"]


def test_a_little_ahead_is_carried_on(database: Database) -> None:
    must(database, create_volume("a"), now=NOW + CARRIED_US)
    must(database, create_volume("b"), now=NOW)
    assert [event.at - NOW for event in log(database)] == [CARRIED_US, CARRIED_US]


def test_a_time_means_the_last_position_that_it_can_mean(database: Database) -> None:
    ahead_and_back(database)
    with database.read() as connection:
        assert [position_at(connection, NOW + it * SECOND) for it in (0, 1, 2, 3)] == [1, 4, 5, 5]
        assert position_at(connection, AHEAD) == 5
        assert last_until(connection, NOW + SECOND, within=2) == 1
        assert position_since(connection, NOW + 2 * SECOND) == 5
        assert window(connection)[:2] == (1, 5)
        assert window(connection).until == AHEAD
        assert window(connection, first=2, last=4)[2:] == (NOW + SECOND, AHEAD)
        assert window(connection, first=4, last=5)[2:] == (NOW + SECOND, NOW + 2 * SECOND)


def test_archiving_goes_on_and_the_log_does_not_begin_in_the_future(database: Database, tmp_path: Path) -> None:
    ahead_and_back(database)
    now = NOW + SETTLED_AFTER_US + SECOND
    with database.read() as connection:
        base = read_base(connection)
        assert closed_until(connection, base, 2, now=now) == 1
        assert closed_until(connection, base, 5, now=now) == 4
    archive(database, until=4, out=tmp_path / "old", now=now)
    with database.read() as connection:
        assert read_base(connection).at == NOW + SECOND
        assert position_at(connection, NOW + 2 * SECOND) == 5
    assert verify(database).findings == []


@settings(max_examples=extent(12, 30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.integers(-400 * 24, 400 * 24), min_size=1, max_size=6))
def test_whatever_clocks_do_the_log_stays_whole(sqlite: Database, steps: list[int]) -> None:
    """And a writer's event is never stamped further from its own clock than is carried on."""
    with sqlite.read() as connection:
        count = read_head(connection).position
    for number, hours in enumerate(steps):
        now = max(NOW + hours * HOUR, 0)
        must(sqlite, create_volume(f"v-{count}-{number}"), now=now)
        last = log(sqlite)[-1]
        assert now <= last.at <= now + CARRIED_US
        with sqlite.read() as connection:
            stamped = [it.position for it in log(sqlite) if it.at <= now]
            assert last_until(connection, now) == (stamped[-1] if stamped else None)
    with sqlite.read() as connection:
        fold_log(connection)


def test_a_lease_is_freed_by_hand_and_the_log_says_so(database: Database) -> None:
    lease = acquire(database, name="controller", holder="a", now=NOW, ttl=HOUR)
    assert lease is not None
    assert free(database, "controller", actor="user/eve", now=NOW, reason="stuck") == lease
    assert current(database, name="controller") is None
    (told,) = log(database)
    assert (told.stream, told.type, told.actor) == ("lease/controller", "LeaseFreed", "user/eve")
    assert told.data == '{"epoch":1,"holder":"a","reason":"stuck"}'
    assert free(database, "controller", actor="user/eve", now=NOW) is None
    assert free(database, "unknown", actor="user/eve", now=NOW) is None
    taken = acquire(database, name="controller", holder="b", now=NOW, ttl=HOUR)
    assert taken is not None
    assert taken.epoch > lease.epoch
    assert verify(database).findings == []
