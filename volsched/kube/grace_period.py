"""How long a pod that is deleted has to end: only where it has a node does anybody have to be waited for.

Until then it is there, with the time at which it should be gone; whoever runs it deletes it for good, with no
grace left. Objects of other kinds have no such time: they go at once, or with their last finalizer.
"""

from datetime import datetime, timedelta
from typing import Any

from volsched.kube.manifest import Manifest, metadata, spec, status

DEFAULT_SECONDS = 30
"""Of a pod that does not say how long it needs."""
ENDED = ("Succeeded", "Failed")


def grace_seconds(pod: Manifest, asked: int | None) -> int:
    """The time that a pod gets; `asked` as the request says it, None: as the pod does."""
    if not spec(pod).get("nodeName") or status(pod).get("phase") in ENDED:
        return 0
    own = spec(pod).get("terminationGracePeriodSeconds")
    return _at_least_one(asked if asked is not None else DEFAULT_SECONDS if own is None else int(own))


def shortened(pod: Manifest, asked: int | None, now: str) -> dict[str, Any] | None:
    """What changes about a pod that is being deleted when it is deleted again; None: nothing.

    Its time can only become less, and never ends in the past.
    """
    left, wanted = time_left(pod), None if asked is None else _at_least_one(asked)
    if wanted is None or wanted >= left:
        return None
    end = _later(str(metadata(pod)["deletionTimestamp"]), wanted - left)
    if end < now:
        return {"deletionTimestamp": now, "deletionGracePeriodSeconds": min(wanted, 1)}
    return {"deletionTimestamp": end, "deletionGracePeriodSeconds": wanted}


def time_left(manifest: Manifest) -> int:
    """The seconds that were given to whoever ends it; with none, nobody has to be waited for."""
    return int(metadata(manifest).get("deletionGracePeriodSeconds") or 0)


def going(now: str, seconds: int) -> dict[str, Any]:
    """What an object says that is to go."""
    return {"deletionTimestamp": _later(now, seconds), "deletionGracePeriodSeconds": seconds}


def _at_least_one(seconds: int) -> int:
    """Less than none counts as the least there is; none at all means at once."""
    return 1 if seconds < 0 else seconds


def _later(time: str, seconds: int) -> str:
    if not seconds:
        return time
    end = datetime.fromisoformat(time) + timedelta(seconds=seconds)
    return end.isoformat().replace("+00:00", "Z")
