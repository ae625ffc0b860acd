"""What a cluster looks like to a live scenario: what users and controllers act upon.

Left out is what no two runs share (uids, times, versions), and our own annotations.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

OURS = "volsched.io"
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Json = Mapping[str, Any]


def snapshot(items: Mapping[str, Iterable[Json]], events: Iterable[Json]) -> dict[str, Any]:
    """`items` by kind: pod, pvc, pv, sts."""
    return {
        "events": sorted(list(event) for event in {_event(it) for it in events}),
        "pods": {_name(it): _pod(it) for it in items["pod"]},
        "pvcs": {_name(it): _claim(it) for it in items["pvc"]},
        "pvs": {_name(it): _volume(it) for it in items["pv"]},
        "sts": {_name(it): _stateful_set(it) for it in items["sts"]},
    }


def _event(event: Json) -> tuple[str, ...]:
    about = event.get("involvedObject", {})
    return (
        about.get("kind", ""),
        about.get("name", ""),
        event.get("type", ""),
        event.get("reason", ""),
        _UID.sub("<UID>", event.get("message", "")),
    )


def _name(manifest: Json) -> str:
    return str(manifest["metadata"]["name"])


def _pod(pod: Json) -> dict[str, Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    scheduled = next((it for it in status.get("conditions") or () if it["type"] == "PodScheduled"), None)
    return {
        "cond": scheduled and {name: scheduled.get(name, "") for name in ("message", "reason", "status")},
        "node": spec.get("nodeName"),
        "nominated": status.get("nominatedNodeName"),
        "terminating": _terminating(pod),
    }


def _claim(claim: Json) -> dict[str, Any]:
    spec, status = claim.get("spec", {}), claim.get("status", {})
    return {
        "ann": _annotations(claim),
        "cap": (status.get("capacity") or {}).get("storage"),
        "class": spec.get("storageClassName"),
        "fin": sorted(claim["metadata"].get("finalizers") or ()),
        "modes": status.get("accessModes"),
        "phase": status.get("phase"),
        "terminating": _terminating(claim),
        "volume": spec.get("volumeName", ""),
    }


def _volume(volume: Json) -> dict[str, Any]:
    spec, status = volume.get("spec", {}), volume.get("status", {})
    reference = spec.get("claimRef")
    named = reference and f"{reference.get('namespace', '')}/{reference.get('name', '')}"
    return {
        "aff": spec.get("nodeAffinity"),
        "ann": _annotations(volume),
        "claimRef": named and named + ("+uid" if reference.get("uid") else ""),
        "fin": sorted(volume["metadata"].get("finalizers") or ()),
        "labels": volume["metadata"].get("labels") or {},
        "msg": _UID.sub("<UID>", status.get("message", "")),
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "terminating": _terminating(volume),
    }


def _stateful_set(stateful_set: Json) -> dict[str, Any]:
    return {
        "replicas": stateful_set.get("status", {}).get("replicas", 0),
        "terminating": _terminating(stateful_set),
    }


def _annotations(manifest: Json) -> dict[str, str]:
    kept = manifest["metadata"].get("annotations") or {}
    return {name: value for name, value in kept.items() if not name.partition("/")[0].endswith(OURS)}


def _terminating(manifest: Json) -> bool:
    return "deletionTimestamp" in manifest["metadata"]
