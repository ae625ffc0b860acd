"""A store in which something of everything is so: a bound pod, one that is being bound, one that waits."""

from pathlib import Path
from typing import Any

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.fresh_stores import unsynced
from volsched.log.database import open_database
from volsched.log.reads.tail import read_head


def labelled(manifest: dict[str, Any], *, namespace: str | None = None, **labels: str) -> dict[str, Any]:
    names = {**manifest["metadata"], "labels": {**manifest["metadata"].get("labels", {}), **labels}}
    if namespace is not None:
        names["namespace"] = namespace
    return {**manifest, "metadata": names}


def tell(path: Path) -> int:
    """Fill the migrated store; answers the position at which `db` was bound and nothing else had happened."""
    database = open_database(f"sqlite:///{path}")
    unsynced(database)
    stepped = Stepped(database, (LOCAL, node("node-0", tier="fast"), node("node-1", tier="slow")))
    stepped.create(volume("disk-0", "5Gi", "node-0"), claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    with database.read() as connection:
        position = read_head(connection).position
    stepped.create(
        labelled(volume("disk-1", "7Gi", "node-1"), tier="slow"),
        labelled(claim("wide", "100Gi"), namespace="shop"),
        labelled(pod("waiting", "wide"), namespace="shop"),
    )
    stepped.settle()
    stepped.create(claim("more", "6Gi"), pod("late", "more"))
    stepped.system.catch_up(stepped.now)
    stepped.system.scheduler.step(stepped.now)
    stepped.cluster.delete("Node", "node-0")
    database.close()
    return position
