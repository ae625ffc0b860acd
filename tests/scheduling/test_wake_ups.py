"""No wake-up is lost: a change that lets a waiting pod in is one that its rejectors' hints say yes to.

Left out are changes that no API server lets through: streams make new objects under old names. And claims that
point at a volume which names another: the PV controller binds none like that.
"""

from dataclasses import replace

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.scheduling.index_streams import Stream
from tests.support.extent import extended, extent
from volsched.kube.object_values import Object
from volsched.kube.storage import Claim, StorageCapacity, StorageClass, Volume, VolumeAttachment
from volsched.kube.workloads import Pod
from volsched.scheduling.queue.hints import helps, hints_for
from volsched.scheduling.queue.object_changes import ObjectChange, aspects_of
from volsched.scheduling.rules.attempts import rejectors_of
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.profile import VOLSCHED
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import Code

pytestmark = extended

TERSE = replace(VOLSCHED, explains=False)
STEPS = 40


class Watching:
    """Notes what has changed, as the picture does."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type[Object], str], Object] = {}
        self.reserved: dict[str, int] = {}
        self.changes: list[ObjectChange] = []

    def put(self, value: Object) -> None:
        key = type(value), value.meta.key
        self.changes.append(ObjectChange(self.objects.get(key), value))
        self.objects[key] = value

    def drop(self, kind: type[Object], key: str) -> None:
        self.changes.append(ObjectChange(self.objects.pop((kind, key), None), None))

    def reserve(self, key: str, size: int) -> None:
        before, self.reserved[key] = self.reserved.get(key, 0), size
        capacity = self.objects.get((StorageCapacity, key))
        if capacity is not None and size < before:
            self.changes.append(ObjectChange(capacity, capacity, let_go=True))

    def promise(self, claim_uid: str, key: str) -> None:
        """Whose the room is that is reserved: what is reserved was told before."""


def is_woken(rejectors: frozenset[str], change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    aspects = aspects_of(change)
    return bool(aspects) and helps(hints_for(rejectors, aspects), change, pod, snapshot)


def can_happen(change: ObjectChange) -> bool:
    """Is it one that an API server lets through?"""
    match change.old, change.new:
        case StorageClass() as old, StorageClass() as new:
            return (old.provisioner, old.volume_binding_mode) == (new.provisioner, new.volume_binding_mode)
        case Claim() as old, Claim() as new:
            return old.access_modes == new.access_modes and old.selector == new.selector
        case Volume() as old, Volume() as new:
            return old.source == new.source
        case StorageCapacity() as old, StorageCapacity() as new:
            return (old.node_topology, old.storage_class_name) == (new.node_topology, new.storage_class_name)
        case VolumeAttachment() as old, VolumeAttachment() as new:
            return (old.node_name, old.volume_name) == (new.node_name, new.volume_name)
        case Pod() as old, Pod() as new:
            lives = new.meta.being_deleted or not old.meta.being_deleted
            return lives and (old.pod_affinity, old.pod_anti_affinity) == (new.pod_affinity, new.pod_anti_affinity)
    return True


def is_misbound(pod: Pod, snapshot: Snapshot) -> bool:
    claims = (snapshot.claim(use.key) for use in claim_uses(pod))
    pairs = ((claim.key, snapshot.volume(claim.volume_name)) for claim in claims if claim is not None)
    references = ((key, volume.claim_ref) for key, volume in pairs if volume is not None)
    return any(it is not None and f"{it.namespace}/{it.name}" != key for key, it in references)


@given(st.integers(0, 2**48))
@example(166)
@settings(max_examples=extent(75, 300), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_a_change_that_lets_a_pod_in_wakes_it(seed: int) -> None:
    watching = Watching()
    stream = Stream(seed, watching)
    waiting = stream.ask(0)
    found = attempt(stream.world.snapshot, waiting, profile=TERSE)
    for step in range(STEPS):
        if found.chosen is not None or found.status.code is Code.ERROR:
            return
        watching.changes.clear()
        stream.step()
        snapshot = stream.world.snapshot
        after = attempt(snapshot, waiting, profile=TERSE)
        possible = all(map(can_happen, watching.changes)) and not is_misbound(waiting, snapshot)
        if after.chosen is not None and possible:
            rejectors = rejectors_of(found)
            woken = any(is_woken(rejectors, change, waiting, snapshot) for change in watching.changes)
            assert woken, f"seed {seed}, step {step}: {sorted(rejectors)} slept through {watching.changes}"
        found = after
