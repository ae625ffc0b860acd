"""How long it took from the plan until the pod had its node, per class and zone."""

from collections.abc import Iterable

from sqlalchemy import Connection

from volsched.log.reads.decision_audit import Took, times_to_bound
from volsched.log.reads.event_audit import Window
from volsched.questions.audit.answers import MICROSECONDS, Answer, Item

PERCENTILES = (50, 90, 99)
LAST_BINDINGS = 1_000
"""Of so many the percentiles are told, unless more are asked for: ten are slower than the 99th."""
ALL = "all"
NONE = "-"


def latency(connection: Connection, within: Window, *, limit: int) -> Answer:
    """Of the legs of the last `limit` committed bindings in the window."""
    return Answer(items=percentiles(times_to_bound(connection, within, limit=limit)))


def percentiles(times: Iterable[Took]) -> list[Item]:
    """By class, then zone; all together last."""
    groups: dict[tuple[str, str], list[int]] = {}
    for it in times:
        groups.setdefault((it.class_name or NONE, it.zone or NONE), []).append(it.microseconds)
    if not groups:
        return []
    items = [_item(*key, sorted(groups[key])) for key in sorted(groups)]
    return [*items, _item(ALL, ALL, sorted(it for group in groups.values() for it in group))]


def _item(class_name: str, zone: str, ordered: list[int]) -> Item:
    """Nearest rank: the smallest time that so many of a hundred did not exceed."""
    ranks = {f"p{it}": -(-len(ordered) * it // 100) - 1 for it in PERCENTILES}
    return {
        "class": class_name,
        "zone": zone,
        "count": len(ordered),
        **{name: ordered[rank] / MICROSECONDS for name, rank in ranks.items()},
        "max": ordered[-1] / MICROSECONDS,
    }
