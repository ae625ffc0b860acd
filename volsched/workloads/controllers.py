"""The wiring of the small controllers: each can be disabled by its name."""

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum

from volsched.log.database import Database
from volsched.runtime.world import Part, World
from volsched.workloads.disruption_budgets import DisruptionBudgets
from volsched.workloads.ephemeral_claims import EphemeralClaims
from volsched.workloads.garbage_collector import DEFAULT_KEEP, Expiry, GarbageCollector, Keep
from volsched.workloads.namespaces import Namespaces
from volsched.workloads.repairs import StaleNodes, ZonalUpgrader
from volsched.workloads.rules.repairs import ZonalReport
from volsched.workloads.rules.statefulsets import is_placed, is_running
from volsched.workloads.statefulsets import StatefulSets


class Upkeep(StrEnum):
    ZONAL_UPGRADE = "zonal-upgrade"
    STATEFUL_SETS = "stateful-sets"
    EPHEMERAL_CLAIMS = "ephemeral-claims"
    GARBAGE_COLLECTION = "garbage-collection"
    STALE_NODES = "stale-nodes"
    DISRUPTION_BUDGETS = "disruption-budgets"
    NAMESPACES = "namespaces"
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
    """The controllers, ordered so that one step uses the previous one's results: a set's pod before its claims.

    `agents`: node agents run the pods, report their status, and end them.
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
        Upkeep.DISRUPTION_BUDGETS: DisruptionBudgets(database, world, f"disruption-budgets/{owner}"),
        Upkeep.NAMESPACES: Namespaces(database, world, f"namespaces/{owner}", grace),
        Upkeep.EXPIRY: Expiry(database, world, f"expiry/{owner}", keep),
    }
    return [part for name, part in parts.items() if name not in without]


def zonal_report(parts: Iterable[Part]) -> ZonalReport:
    """The report of the zonal upgrade in this process; empty if it is disabled."""
    return next((part.report for part in parts if isinstance(part, ZonalUpgrader)), ZonalReport())
