"""The periodic resync: all that waits for something every time, and what is at rest in turns."""

from tests.support.clusters import Stepped, claim
from tests.support.store_samples import create_volume
from volsched.log.database import Database
from volsched.log.transaction import execute
from volsched.pv_controller.controller import RESYNC, TURN

FREE = TURN + 100


def synced(stepped: Stepped) -> int:
    """What the controller looks at in one resync, and until it rests again."""
    stepped.now += RESYNC
    total = 0
    while progress := stepped.system.controller.step(stepped.now):
        total += progress
    return total


def test_free_volumes_are_synced_in_turns_and_a_waiting_claim_every_time(sqlite: Database) -> None:
    execute(sqlite, [create_volume(f"v{number:05}") for number in range(FREE)], now=1)
    stepped = Stepped(sqlite, [claim("data", "4Gi")])
    stepped.settle()
    rounds = [synced(stepped) for _ in range(4)]
    assert max(rounds) <= TURN + 1
    assert sum(rounds) >= 2 * FREE + len(rounds)


def test_whoever_begins_to_lead_syncs_everything(sqlite: Database) -> None:
    execute(sqlite, [create_volume(f"v{number:05}") for number in range(FREE)], now=1)
    first = Stepped(sqlite)
    first.settle()
    first.system.close()
    second = Stepped(sqlite, owner="other")
    second.now = first.now
    second.system.catch_up(second.now)
    assert synced(second) >= FREE
