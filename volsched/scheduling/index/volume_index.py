"""A shelf: the free volumes of one class, where each can be reached, sorted by size.

Volumes that are alike in all a claim can ask for, but for size and place, form a pool; one sample answers for all
of them. A volume that only one node reaches stands there as part of the node's stock, and nodes with equal stocks
(sizes and pools in serving order, whatever the names) are equal in all that follows. Others a domain shares.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from volsched.kube.meta import Metadata
from volsched.kube.quantity import INT64_MAX, NANO, Quantity
from volsched.kube.selectors import label_selector_problem
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.kube.workloads import Node
from volsched.scheduling.index.domains import Domain, selector_key
from volsched.scheduling.index.node_sets import is_single
from volsched.scheduling.index.shared_volumes import Row, Shape, Shared, remove
from volsched.scheduling.index.stock_ranks import Census
from volsched.scheduling.rules.disks import attach_id
from volsched.scheduling.rules.matching import Search, failed_rules, is_unseen

FEW = 12
ANY_NODE = Node(meta=Metadata())
# Larger than any claim: whether a volume is large enough is asked of the rows, not of the pool.
_HUGE = {"storage": Quantity(INT64_MAX * NANO * NANO)}


def is_free(volume: Volume, *, unseen: bool) -> bool:
    """May serve some claim that it does not name. `unseen`: so may one that no controller has looked at yet."""
    if volume.claim_ref is not None or volume.meta.being_deleted:
        return False
    return volume.phase == AVAILABLE or (unseen and is_unseen(volume))


@dataclass(slots=True, eq=False)
class PlacedVolume:
    """A volume on the shelf. `at`: the only node that reaches it, as a position, or its domain."""

    row: Row
    at: int | Domain


@dataclass(slots=True)
class Shelf:
    label_keys: set[str]
    """The volume labels that some claim's selector asks about; others make no difference between volumes."""
    samples: list[Volume] = field(default_factory=list)
    drivers: list[str | None] = field(default_factory=list)
    """Per pool, the driver whose attach slots its volumes take."""
    own: dict[int, list[Row]] = field(default_factory=dict)
    census: Census = field(default_factory=Census)
    shared: dict[Domain, Shared] = field(default_factory=dict)
    _pools: dict[Hashable, int] = field(default_factory=dict)
    _placed: dict[str, PlacedVolume] = field(default_factory=dict)
    _fitting: dict[Hashable, tuple[int, frozenset[int]]] = field(default_factory=dict)

    def put(self, volume: Volume, domain: Domain) -> None:
        """Put a free volume where it can be reached; one that no node reaches waits for its domain to change."""
        if not domain.mask:
            return
        row = (volume.size.nano, volume.name, self._pool(volume))
        if is_single(domain.mask):
            position = domain.mask.bit_length() - 1
            self._placed[volume.name] = PlacedVolume(row, position)
            insort(self.own.setdefault(position, []), row)
            self._restock(position)
        else:
            self._placed[volume.name] = PlacedVolume(row, domain)
            if domain not in self.shared:
                self.shared[domain] = Shared()
            self.shared[domain].put(row)

    def names(self) -> Iterable[str]:
        """Of all volumes on it, in no order that matters."""
        return self._placed

    def take(self, name: str) -> None:
        placed = self._placed.pop(name, None)
        if placed is None:
            return
        if isinstance(placed.at, int):
            remove(self.own[placed.at], placed.row)
            self._restock(placed.at)
            return
        self.shared[placed.at].take(placed.row)
        if not self.shared[placed.at]:
            del self.shared[placed.at]

    def _restock(self, position: int) -> None:
        rows = self.own[position]
        self.census.move(position, tuple((row[0], row[2]) for row in rows))
        if not rows:
            del self.own[position]

    def _pool(self, volume: Volume) -> int:
        attached_as = attach_id(volume)
        driver = None if attached_as is None else attached_as.driver
        labels = volume.meta.labels
        key = (
            volume.mode,
            volume.attributes_class or "",
            frozenset(volume.access_modes),
            driver,
            tuple((name, labels[name]) for name in sorted(self.label_keys) if name in labels),
        )
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = len(self.samples)
            self.samples.append(replace(volume, node_affinity=None, capacity=_HUGE, phase=AVAILABLE))
            self.drivers.append(driver)
        return pool

    def fitting(self, claim: Claim) -> frozenset[int]:
        """The pools whose volumes may serve the claim where they are large enough and within reach."""
        selector = None if claim.selector is None else selector_key(claim.selector)
        key = (claim.mode, claim.attributes_class or "", claim.access_modes, selector)
        asked, found = self._fitting.get(key, (0, frozenset[int]()))
        if asked < len(self.samples):
            found |= {pool for pool in range(asked, len(self.samples)) if _fits(claim, self.samples[pool])}
            self._fitting[key] = len(self.samples), found
        return found


def best_rows(rows: list[Row], shape: Shape) -> Iterable[str]:
    """The names of enough rows: of every pool the first few that are large enough for a claim, or some more."""
    large = rows[bisect_left(rows, (min([size for size, _ in shape]),)) :]
    if len(large) <= FEW:
        # To try a few in vain costs less than to tell which.
        return [name for _, name, _ in large]
    found: dict[str, None] = {}
    for wanted, fitting in shape:
        left = dict.fromkeys(fitting, len(shape))
        wanting = len(fitting)
        for size, name, pool in large:
            if size >= wanted and left.get(pool, 0):
                left[pool] -= 1
                found[name] = None
                if not left[pool]:
                    wanting -= 1
                    if not wanting:
                        break
    return found


def _fits(claim: Claim, sample: Volume) -> bool:
    if claim.selector is not None and label_selector_problem(claim.selector) is not None:
        return False
    return next(failed_rules(Search(claim=claim, node=ANY_NODE), sample), None) is None
