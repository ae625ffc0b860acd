"""Rolling updates: the pods of an older template to replace next.

The highest ordinal first, never one below the partition, and never more than `maxUnavailable` pods unavailable at
once. With `OnDelete` a pod is replaced when a user deletes it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from volsched.kube.manifest import Manifest, spec

ON_DELETE = "OnDelete"


@dataclass(frozen=True, slots=True)
class RollingUpdate:
    by_hand: bool = False
    """Strategy `OnDelete`: a user deletes the pods to replace."""
    partition: int | None = None
    """None: the set has no rolling-update section, as older clients leave it out."""
    most_away: int | str = 1

    def keeps(self, index: int, set_status: Manifest) -> bool:
        """Whether a missing pod gets the current template, not the new one. `index` counts from 0."""
        if self.partition is not None:
            return index < self.partition
        return not self.by_hand and index < int(set_status.get("currentReplicas") or 0)

    def allowed_away(self, replicas: int) -> int:
        """How many pods may be unavailable: at least one, otherwise no pod would ever be replaced."""
        if isinstance(self.most_away, int):
            return max(self.most_away, 1)
        return max(floor(Fraction(self.most_away.rstrip("%") or 0) * replicas / 100), 1)


def rolling_update(stateful_set: Manifest) -> RollingUpdate:
    strategy = spec(stateful_set).get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    by_hand = strategy.get("type") == ON_DELETE
    if not isinstance(rolling, dict):
        return RollingUpdate(by_hand)
    most = rolling.get("maxUnavailable")
    return RollingUpdate(by_hand, int(rolling.get("partition") or 0), 1 if most is None else most)


def pods_to_replace(
    update: RollingUpdate, replicas: int, old: Collection[int], available: Collection[int], *, in_order: bool
) -> list[int]:
    """The pods to replace. `old`: pods of an older template not being deleted; all by index, counted from 0."""
    if update.by_hand:
        return []
    left = update.allowed_away(replicas) - (replicas - len(available))
    wanted = sorted((it for it in old if it >= (update.partition or 0)), reverse=True)
    if in_order:
        return wanted[: max(left, 0)]
    # Pods that are unavailable already are replaced first, at no cost.
    away = [it for it in wanted if it not in available]
    return [*away, *[it for it in wanted if it in available][: max(left, 0)]]
