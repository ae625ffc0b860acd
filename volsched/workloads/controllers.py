"""The small controllers that people take for granted, wired: each can be left out by its name."""

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

from volsched.log.database import Database
from volsched.runtime.participant import Part
from volsched.runtime.world import World
from volsched.workloads.ephemeral_claims import EphemeralClaims
from volsched.workloads.expiry import DEFAULT_KEEP, Expiry, Keep
from volsched.workloads.garbage_collector import GarbageCollector
from volsched.workloads.rules.statefulsets import is_placed, is_running
from volsched.workloads.rules.zonal_upgrade import ZonalReport
from volsched.workloads.stale_nodes import StaleNodes
from volsched.workloads.statefulsets import StatefulSets
from volsched.workloads.zonal_upgrade import ZonalUpgrader


class Upkeep(StrEnum):
    ZONAL_UPGRADE = "zonal-upgrade"
    STATEFUL_SETS = "stateful-sets"
    EPHEMERAL_CLAIMS = "ephemeral-claims"
    GARBAGE_COLLECTION = "garbage-collection"
    STALE_NODES = "stale-nodes"
    EXPIRY = "expiry"


def upkeep_parts(
    database: Database,
    world: World,
    *,
    owner: str,
    new_uid: Callable[[], str],
    agents: bool,
    without: Collection[Upkeep],
    keep: Keep = DEFAULT_KEEP,
) -> list[Part]:
    """In the order in which they help each other within one step: a set's pod before that pod's claims.

    `agents`: somebody runs the pods, says how they are, and ends them.
    """
    grace = None if agents else 0
    parts: dict[Upkeep, Part] = {
        Upkeep.ZONAL_UPGRADE: ZonalUpgrader(database, world, f"zonal-upgrade/{owner}"),
        Upkeep.STATEFUL_SETS: StatefulSets(
            database,
            world,
            f"stateful-sets/{owner}",
            new_uid,
            ready=is_running if agents else is_placed,
            grace=grace,
        ),
        Upkeep.EPHEMERAL_CLAIMS: EphemeralClaims(database, world, f"ephemeral-claims/{owner}", new_uid),
        Upkeep.GARBAGE_COLLECTION: GarbageCollector(database, world, f"garbage-collection/{owner}", grace),
        Upkeep.STALE_NODES: StaleNodes(database, world, f"stale-nodes/{owner}"),
        Upkeep.EXPIRY: Expiry(database, world, f"expiry/{owner}", keep),
    }
    return [part for name, part in parts.items() if name not in without]


def zonal_report(parts: Iterable[Part]) -> ZonalReport:
    """What the zonal upgrade has done in this process; empty where it is left out."""
    return next((part.report for part in parts if isinstance(part, ZonalUpgrader)), ZonalReport())
