"""Events under `events.k8s.io`: the same objects as those of `/api/v1`, with other names for some fields."""

from collections.abc import Mapping
from typing import Any

EVENTS_VERSION = "events.k8s.io/v1"
_CORE_VERSION = "v1"
_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES = {new: core for core, new in _NEW_NAMES.items()}


def as_new_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**{_NEW_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": EVENTS_VERSION}


def as_core_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**{_CORE_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": _CORE_VERSION}
