"""A store in the middle of a binding."""

import pytest

from tests.support.armed_faults import DiedError, armed
from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.log.database import open_database

CLUSTER = (LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))


def plan_and_die(stepped: Stepped) -> None:
    def die(point: str) -> None:
        if point == "scheduler.planned":
            raise DiedError

    with armed(die), pytest.raises(DiedError):
        stepped.until(lambda: False)


def half_done(db: str) -> None:
    """A process that dies after it has planned a binding."""
    database = open_database(f"sqlite:///{db}")
    stepped = Stepped(database, CLUSTER)
    stepped.settle()

    stepped.create(claim("more", "1Gi"), volume("disk-2", "2Gi", "node-0"), pod("late", "more"))
    plan_and_die(stepped)
    database.close()
