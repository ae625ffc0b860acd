"""The score of a node for a pod's volumes, 0..100.

Two policies: the reference's, which maps utilisation through a shape, and `closest-fit`, which prefers the closest
fit and any existing volume over any new one. The index estimates with the same functions.
"""

from collections.abc import Sequence

from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.storage import StorageCapacity
from volsched.scheduling.plugins.plugin import MAX_SCORE
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume
from volsched.scheduling.rules.profile import SPREAD, Profile, ScoringPolicy, ShapePoint
from volsched.scheduling.rules.volume_filter import NodeAnswer

_SCALE = 10
"""Shape scores are 0..10, node scores 0..100."""


def node_score(decision: NodeAnswer, *, profile: Profile) -> int:
    if profile.scoring is ScoringPolicy.CLOSEST_FIT:
        return _closest_fit_score(decision, profile)
    return _upstream_score(decision, profile)


def utilization(requested: int, capacity: int) -> int:
    if capacity == 0 or requested > capacity:
        return 100
    return requested * 100 // capacity


def shape_score(shape: Sequence[ShapePoint], used: int) -> int:
    """The shape's linear interpolation at `used`, scaled to 0..100, truncated toward zero between points."""
    for index, point in enumerate(shape):
        if used <= point.utilization:
            if index == 0:
                return point.score * _SCALE
            before = shape[index - 1]
            rise = (point.score - before.score) * _SCALE * (used - before.utilization)
            run = point.utilization - before.utilization
            step = abs(rise) // run
            return before.score * _SCALE + (step if rise >= 0 else -step)
    return shape[-1].score * _SCALE


def fit_score(wanted: int, size: int) -> int:
    """`closest-fit`: an existing volume of `size` bytes for a claim of `wanted`, 50..100."""
    return 50 + 50 * wanted // max(1, size)


BEST_NEW_VOLUME = 49
"""`closest-fit`: no new volume scores higher, so any existing one is better."""
NEW_VOLUME_SCORES = tuple(BEST_NEW_VOLUME * shape_score(SPREAD, used) // MAX_SCORE for used in range(101))
"""The scores of new volumes, by the percentage of the published capacity that the claim would use."""


def rounded_mean(scores: Sequence[int]) -> int:
    """The mean, with a half rounded up; Python's round() would round to even."""
    return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _upstream_score(decision: NodeAnswer, profile: Profile) -> int:
    requested: dict[str, int] = {}
    capacity: dict[str, int] = {}
    if decision.bindings:
        for binding in decision.bindings:
            # The class field, not the beta annotation: the reference reads no further here.
            name = binding.volume.storage_class_name
            requested[name] = requested.get(name, 0) + profile.bytes_of(binding.claim.size)
            capacity[name] = capacity.get(name, 0) + profile.bytes_of(binding.volume.size)
    else:
        for provision in decision.provisions:
            if provision.capacity is not None:
                name = provision.claim.class_name
                requested[name] = requested.get(name, 0) + profile.bytes_of(provision.claim.size)
                capacity[name] = profile.bytes_of(_published_total(provision.capacity))
    return rounded_mean(
        [shape_score(profile.shape, utilization(requested[name], capacity[name])) for name in requested]
    )


def _closest_fit_score(decision: NodeAnswer, profile: Profile) -> int:
    bytes_of = profile.bytes_of
    existing = [fit_score(bytes_of(it.claim.size), bytes_of(it.volume.size)) for it in decision.bindings]
    return rounded_mean(existing + [_new_volume_score(it, profile) for it in decision.provisions])


def _new_volume_score(provision: PlannedVolume, profile: Profile) -> int:
    if provision.capacity is None:
        return 0
    total = profile.bytes_of(_published_total(provision.capacity))
    return new_volume_score(profile.bytes_of(provision.claim.size), total)


def new_volume_score(wanted: int, total: int) -> int:
    """The score of a volume to be provisioned, from the capacity available for it."""
    return NEW_VOLUME_SCORES[utilization(wanted, total)]


def _published_total(capacity: StorageCapacity) -> Quantity:
    """The plain capacity even if the largest volume size decided; the reference crashes if it is absent."""
    return capacity.capacity or capacity.limit or ZERO
