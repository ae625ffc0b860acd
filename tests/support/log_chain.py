"""The chain of a log, checked by hand."""

from pathlib import Path

from tests.support.log_reads import log
from volsched.log.database import Database
from volsched.log.events.envelope import GENESIS, links_to

ROOT = Path(__file__).parents[2]


def check_chain(database: Database) -> None:
    previous = GENESIS
    for place, event in enumerate(log(database), start=1):
        assert event.position == place
        assert links_to(event, previous)
        previous = event.hash
