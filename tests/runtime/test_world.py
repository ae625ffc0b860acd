"""A world that takes its own process's commits as they are knows what one that reads the log knows."""

from tests.support.store_samples import create_volume, must
from volsched.lab.bench.statement_count import traced
from volsched.log.commit_listeners import MOST_KEPT
from volsched.log.database import Database, open_database
from volsched.runtime.world import World


def test_commits_of_this_process_and_of_others_in_turn_are_all_taken_in_order(
    database: Database, url: str
) -> None:
    other, world = open_database(url), World(database)
    world.catch_up()
    try:
        for number in range(3):
            must(database, create_volume(f"ours-{number}"))
            must(other, create_volume(f"theirs-{number}"))
            must(database, create_volume(f"ours-too-{number}"))
            changed = world.catch_up()
            assert list(changed) == [f"volume/{name}-{number}" for name in ("ours", "theirs", "ours-too")]
    finally:
        other.close()
    fresh = World(database)
    fresh.catch_up()
    assert (world.position, world.states) == (fresh.position, fresh.states)
    assert world.catch_up() == {}


def test_a_world_that_was_not_looked_at_for_long_reads_the_log(database: Database) -> None:
    world = World(database)
    world.catch_up()
    for number in range(MOST_KEPT + 3):
        must(database, create_volume(f"v{number}"))
    assert len(world.catch_up()) == MOST_KEPT + 3
    assert world.catch_up() == {}


def test_the_events_of_an_own_commit_are_not_read_again(sqlite: Database) -> None:
    world, statements = World(sqlite), list[str]()
    world.catch_up()
    must(sqlite, create_volume("a"))
    with traced(sqlite, statements.append):
        assert list(world.catch_up()) == ["volume/a"]
    assert world.position == 1
    assert [it for it in statements if "FROM events" in it and "position > 0" in it] == []
