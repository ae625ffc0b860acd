"""A store in the middle of a binding."""

import pytest

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from volsched.log.database import open_database
from volsched.runtime import fault_points

CLUSTER = (LOCAL, node("node-0"), volume("disk", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))


def half_done(db: str) -> None:
    """A process that dies after it has planned a binding."""
    database = open_database(f"sqlite:///{db}")
    stepped = Stepped(database, CLUSTER)
    stepped.settle()

    def die(point: str) -> None:
        if point == "scheduler.planned":
            raise fault_points.FaultError

    stepped.create(claim("more", "1Gi"), volume("disk-2", "2Gi", "node-0"), pod("late", "more"))
    fault_points.arm(die, drill=True)
    with pytest.raises(fault_points.FaultError):
        stepped.until(lambda: False)
    fault_points.arm(None, drill=False)
    database.close()
