"""The grace period of a deleted pod: only a pod with a node has one.

Until it ends, the pod exists with a `deletionTimestamp`; then its node agent deletes it.
Objects of other kinds have no grace period: they are deleted at once, or with their last finalizer.
"""

from datetime import datetime, timedelta
from typing import Any

from volsched.kube.manifest import Manifest, metadata, spec, status
from volsched.kube.workloads import TERMINATED

DEFAULT_SECONDS = 30
"""The grace period of a pod that does not set one."""


def grace_seconds(pod: Manifest, requested: int | None) -> int:
    """The grace period of a pod; `requested` is that of the request, None: the pod's own."""
    if not spec(pod).get("nodeName") or status(pod).get("phase") in TERMINATED:
        return 0
    own = spec(pod).get("terminationGracePeriodSeconds")
    return _at_least_one(requested if requested is not None else DEFAULT_SECONDS if own is None else int(own))


def shortened(pod: Manifest, requested: int | None, now: str) -> dict[str, Any] | None:
    """The change of a terminating pod that is deleted again; None: nothing changes.

    The grace period can only shrink, and never ends in the past.
    """
    left, wanted = time_left(pod), None if requested is None else _at_least_one(requested)
    if wanted is None or wanted >= left:
        return None
    end = later(str(metadata(pod)["deletionTimestamp"]), wanted - left)
    if end < now:
        return {"deletionTimestamp": now, "deletionGracePeriodSeconds": min(wanted, 1)}
    return {"deletionTimestamp": end, "deletionGracePeriodSeconds": wanted}


def time_left(manifest: Manifest) -> int:
    """The remaining grace period in seconds; with none, deletion need not wait."""
    return int(metadata(manifest).get("deletionGracePeriodSeconds") or 0)


def going(now: str, seconds: int) -> dict[str, Any]:
    """The metadata of an object that is marked for deletion."""
    return {"deletionTimestamp": later(now, seconds), "deletionGracePeriodSeconds": seconds}


def _at_least_one(seconds: int) -> int:
    """A negative period counts as one second; zero means at once."""
    return 1 if seconds < 0 else seconds


def later(time: str, seconds: int) -> str:
    if not seconds:
        return time
    end = datetime.fromisoformat(time) + timedelta(seconds=seconds)
    return end.isoformat().replace("+00:00", "Z")
