"""What grows with the work goes when it is of no use any more, and not before."""

from sqlalchemy import func, select

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.histories import views
from tests.support.store_samples import NOW, create_volume, must
from volsched.binding.rules.failures import REQUESTED
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.log.retention.expiry import expire_commands
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.runtime.clock import SECOND
from volsched.workloads.garbage_collector import DAY, Keep


def count(database: Database, table: object) -> int:
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[arg-type]


def test_events_and_finished_work_go_after_their_time(database: Database) -> None:
    world = Stepped(database, [LOCAL, node("n"), volume("v", "1Gi", "n")], keep=Keep(notices=DAY, done=2 * DAY))
    world.create(claim("c", "1Gi"), pod("p", "c"), pod("never", "missing"))
    world.settle()
    done = count(database, tables.effects_done)
    assert (count(database, tables.notices) > 0, done > 0) == (True, True)
    world.step(after=DAY // 2)
    assert count(database, tables.notices) > 0
    # Those who wait are told again once in a while, so theirs are younger.
    before = {row[0] for row in views(database, tables.notices)["notices"]}
    world.step(after=DAY)
    world.settle()
    assert not before & {row[0] for row in views(database, tables.notices)["notices"] if row[2] <= 20}
    assert count(database, tables.effects_done) == done
    world.step(after=DAY)
    world.settle()
    assert count(database, tables.effects_done) == 0
    assert verify(database).ok


def test_what_is_counted_about_a_pod_stays_as_long_as_the_pod(sqlite: Database) -> None:
    """How often its claims were asked back is said nowhere else."""
    world = Stepped(sqlite, [LOCAL, node("n"), pod("p", "missing")], keep=Keep(notices=DAY))
    world.settle()
    uid = (world.cluster.get("Pod", "default/p") or {})["metadata"]["uid"]
    told = door.notice(
        "Pod", "default/p", door.controller("t", world.now),
        uid=uid, type_="Normal", reason=REQUESTED, message=REQUESTED, component="t",
    )  # fmt: skip
    execute(sqlite, [told], now=world.now)

    def remembered() -> int:
        return sum(REQUESTED in row for row in views(sqlite, tables.notices)["notices"])

    world.step(after=2 * DAY)
    world.settle()
    assert remembered() == 1
    world.cluster.delete("Pod", "default/p")
    world.settle()
    world.step(after=61 * SECOND)
    world.settle()
    assert remembered() == 0


def test_a_result_is_kept_for_those_who_ask_again_and_then_forgotten(database: Database) -> None:
    must(database, create_volume("a", key="once"), now=NOW)
    assert expire_commands(database, before=NOW) == 0
    assert must(database, create_volume("a", key="once"), now=NOW + 1)[0].repeated
    assert expire_commands(database, before=NOW + 1) == 1
    assert count(database, tables.commands) == 0
