"""A foreign cluster under test: what it has, what our views say of it, and writes by somebody else."""

from collections.abc import Mapping
from random import Random
from typing import Any

from sqlalchemy import select

from volsched.cluster.foreign_api import ABLE, ForeignApi
from volsched.cluster.mirror import KINDS_MIRRORED, Mirror
from volsched.cluster.port import Capabilities, Manifest, whole
from volsched.cluster.simulated import ClusterFaults, SimulatedCluster
from volsched.kube.patches import merged
from volsched.log.database import Database
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.log.reads.tail import tail
from volsched.log.row_states import object_state
from volsched.log.rows import VIEWS
from volsched.objects.observations import without_null_fields

TIME = "2026-11-16T12:00:00Z"


def simulated(*, seed: int = 1, capabilities: Capabilities = ABLE, **faults: Any) -> SimulatedCluster:
    return SimulatedCluster(
        ForeignApi(now_text=lambda: TIME, capabilities=capabilities), Random(seed), ClusterFaults(**faults)
    )


def change(api: ForeignApi, kind: str, key: str, patch: Mapping[str, Any], *, status: bool = False) -> Manifest:
    """Somebody else writes an object that is there."""
    found = api.get(kind, key)
    assert found is not None, f"{kind} {key} is not there to be changed"
    return api.update(kind, merged(found, patch), status=status)


def in_cluster(api: ForeignApi) -> dict[str, dict[str, Any]]:
    """Every object by kind and name, as our views should have it."""
    return {
        f"{kind} {it['metadata'].get('namespace', '')} {it['metadata']['name']}": without_null_fields(it)
        for kind in KINDS_MIRRORED
        for it in whole(api.list(kind)).objects
    }


def in_views(database: Database) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    with database.read() as connection:
        for kind in KINDS_MIRRORED:
            for row in connection.execute(select(VIEWS[NOUN_OF_KIND[kind]][0])).mappings():
                manifest = dict(object_state(row).manifest or {})
                found[f"{kind} {manifest['metadata'].get('namespace', '')} {manifest['metadata']['name']}"] = (
                    manifest
                )
    return found


def follow(mirror: Mirror, cluster: SimulatedCluster, *, now: int, at_most: int = 50) -> None:
    """Step until nothing is left to be observed, with a good line."""
    cluster.faults = ClusterFaults()
    for _ in range(at_most):
        if not mirror.step(now):
            return
    raise AssertionError(f"the mirror still has something to do after {at_most} steps")


def types_of(database: Database, stream: str) -> list[str]:
    with database.read() as connection:
        return [it.type for it in tail(connection, after=0, limit=1_000) if it.stream == stream]
