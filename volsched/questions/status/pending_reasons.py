"""Reasons why pods wait, grouped: their messages without the names and counts that differ from pod to pod."""

import re
from collections.abc import Mapping
from typing import Any

from volsched.kube.manifest import spec, status
from volsched.kube.meta import OUR_SCHEDULERS
from volsched.scheduling.rules.attempts import POD_SCHEDULED, PREFILTER_TAIL

IN_FLIGHT = "its binding is in flight"
NOT_TRIED = "not tried yet"
GATED = "held back by scheduling gates"
LONGEST = 160
_COUNTS = re.compile(r"^0/\d+ nodes are available: ")
_ONE_COUNT = re.compile(r"^\d+ ")
_NAMES = re.compile(r'"[^"]*"')


def pending_reason(pod: Mapping[str, Any], *, in_flight: bool) -> str:
    """The reason why a pod waits: the same for all pods with the same cause, so there are few reasons."""
    if in_flight:
        return IN_FLIGHT
    if spec(pod).get("schedulingGates"):
        return GATED
    conditions = status(pod).get("conditions", ())
    message = next((it.get("message") for it in conditions if it.get("type") == POD_SCHEDULED), None)
    if message:
        return shortened(str(message))
    name = spec(pod).get("schedulerName") or ""
    return NOT_TRIED if name in OUR_SCHEDULERS else f'another scheduler (schedulerName "{name}")'


def shortened(message: str) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had …` → `Insufficient cpu, node(s) had …`"""
    reasons = message.partition(" preemption: ")[0].removesuffix(f".{PREFILTER_TAIL}")
    parts = _NAMES.sub("…", _COUNTS.sub("", reasons).rstrip(". ")).split(", ")
    unique = {_ONE_COUNT.sub("", part) for part in parts}
    return ", ".join(sorted(unique))[:LONGEST]
