"""Pods behind our gate for which no node is found: after a while the gate is removed, and their scheduler decides.

A gated pod is invisible to autoscalers. Without a gate kube-scheduler calls it Unschedulable, and they act.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from volsched.binding.rules.foreign_notice import notice_effect, ungate_effect
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.fold import NOTHING, Decision, States, living
from volsched.log.transaction import execute
from volsched.runtime.clock import SECOND
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.scheduler import wants_volumes

PATIENCE_SECONDS = 30
GIVEN_UP = "GateRemoved"


@dataclass(slots=True)
class GatePatience:
    database: Database
    picture: Picture
    gate: str
    actor: str
    patience_seconds: int = PATIENCE_SECONDS
    _waiting: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Pod → its uid, and since when this process has seen it behind the gate."""

    def update(self, streams: Iterable[str], now: int) -> None:
        for stream in streams:
            if stream.startswith("pod/"):
                self._update_pod(stream.removeprefix("pod/"), now)

    def step(self, now: int) -> int:
        late = [
            (key, uid)
            for key, (uid, since) in self._waiting.items()
            if now >= since + self.patience_seconds * SECOND and key not in self.picture.planned
        ]
        for key, _ in late:
            del self._waiting[key]
        execute(self.database, [self._give_up_command(key, uid) for key, uid in late], now=now)
        return len(late)

    def next_due(self) -> int | None:
        unplanned = (since for key, (_, since) in self._waiting.items() if key not in self.picture.planned)
        first = min(unplanned, default=None)
        return None if first is None else first + self.patience_seconds * SECOND

    def _update_pod(self, key: str, now: int) -> None:
        pod = self.picture.index.snapshot.pods.get(key)
        if pod is None or not wants_volumes(pod, self.gate):
            self._waiting.pop(key, None)
        elif self._waiting.get(key, ("", 0))[0] != pod.meta.uid:
            self._waiting[key] = (pod.meta.uid, now)

    def _give_up_command(self, key: str, uid: str) -> Command:
        reason = f"no node was found for its volumes within {self.patience_seconds} s"

        def decide(states: States) -> Decision:
            pod = living(states, f"pod/{key}")
            if pod is None or pod.assumed is not None:
                return NOTHING
            notice = notice_effect(
                f"gate/{uid}", kind="Pod", key=key, uid=uid, type_="Warning", reason=GIVEN_UP, message=reason
            )
            return Decision(effects=(ungate_effect(key, uid, reason), notice))

        return Command(actor=self.actor, streams=(f"pod/{key}",), decide=decide)
