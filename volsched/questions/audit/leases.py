"""Leases as they are shown to people and programs, by the command line and over HTTP alike."""

from collections.abc import Iterable
from typing import Any

from volsched.log.leases import LeaseStanding
from volsched.runtime.clock import SECOND, rfc3339


def lease_rows(standings: Iterable[LeaseStanding], *, now: int) -> list[dict[str, Any]]:
    return [
        {
            "name": it.lease.name,
            "holder": it.lease.holder,
            "epoch": it.lease.epoch,
            "until": rfc3339(it.lease.until),
            "renewedSecondsAgo": round(it.age(now) / SECOND, 1),
            "held": it.over is None,
            "why": "" if it.over is None else it.over.value,
        }
        for it in standings
    ]
