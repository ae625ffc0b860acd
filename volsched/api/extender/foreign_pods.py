"""Pods that a caller has shown us and that are not the ones of this API, though name and uid are the same.

A dump of another cluster that was imported keeps its uids, and so does a copy of a store. If the scheduler of that
cluster asks us, its pods look like ours, and to bind ours would tell it that its own is bound, which then waits
for ever. Only the version tells them apart: ours is a position at which this log has written that very pod.
"""

from dataclasses import dataclass, field

from volsched.kube.manifest import metadata
from volsched.kube.workloads import Pod
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.events.decision import States
from volsched.log.events.object_states import living
from volsched.log.reads.tail import event

MOST = 10_000
"""Pods that are remembered; whoever asks us to bind has shown us the pod a moment ago."""


@dataclass(slots=True)
class Strangers:
    database: Database
    _versions: dict[str, str] = field(default_factory=dict)
    """Uid → a version that the pod of this API has never had."""

    def meet(self, pod: Pod, states: States) -> None:
        """A pod as its scheduler knows it; `states` are of now, so that it cannot know more than we do."""
        shown = pod.meta.resource_version
        if not shown or self._is_ours(pod, shown, states):
            self._versions.pop(pod.meta.uid, None)
            return
        self._versions[pod.meta.uid] = shown
        if len(self._versions) > MOST:
            del self._versions[next(iter(self._versions))]

    def version_of(self, uid: str) -> str | None:
        """The version by which the pod was found to be another's; None where nothing is against it."""
        return self._versions.get(uid)

    def _is_ours(self, pod: Pod, shown: str, states: States) -> bool:
        stream = f"pod/{pod.key}"
        held = living(states, stream)
        if held is None or shown in (str(held.rv), metadata(held.manifest or {}).get("resourceVersion")):
            # A mirrored pod has the version of the cluster that it lives in, and is bound there.
            return True
        if not shown.isdecimal() or len(shown) > 18:
            return False
        with self.database.read() as connection:
            written = event(connection, int(shown))
            if written is None:
                return int(shown) <= read_base(connection).position
            return written.stream == stream
