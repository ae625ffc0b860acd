"""Random streams of events over a small, crowded cluster: everything that can collide does.

Drawn from one seed rather than by Hypothesis' own strategies: a stream has hundreds of draws, and thousands of
streams must run in seconds. A failing seed repeats exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.scheduling import wishes
from tests.support.objects import (
    ROX,
    RWO,
    affinity,
    capacity,
    claim,
    csi_node,
    driver,
    local_volume,
    needs,
    node,
    on_zone,
    pod,
    read,
    ref_to,
    storage_class,
    volume,
)
from volsched.kube.meta import ALPHA_SELECTED_NODES, HOSTNAME, ZONE
from volsched.kube.object_values import Object
from volsched.kube.selectors import NodeSelector, NodeTerm, Requirement
from volsched.kube.storage import Claim, StorageCapacity, Volume, VolumeNodeAffinity
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import Attempt
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.volume_filter import assume_pod_volumes

NODES = tuple(f"n{i}" for i in range(6))
ZONES = ("a", "b")
CLASSES = ("local", "dyn", "other")
DRIVERS = ("csi.example.com", "csi.other.com")
RWOP = "ReadWriteOncePod"
MODES = (*[(RWO,)] * 6, (ROX,), (RWO, ROX), (RWO, ROX), (RWO, RWOP))
GIB = 2**30

# What a stream is rich in, because it would be rare by chance: everything at once; volumes that one node has for
# itself; room to provision; equal sizes of unequal volumes, own and shared; attach limits.
FLAVOURS = ("crowded", "local", "rooms", "mixed", "attached")
# Where the volumes are: host, hosts, zone, not-zone, anywhere, nowhere.
PLACES = {
    "crowded": (10, 2, 3, 1, 2, 1),
    "local": (1, 0, 0, 0, 0, 0),
    "rooms": (1, 0, 0, 0, 0, 0),
    "mixed": (6, 0, 2, 0, 1, 0),
    "attached": (2, 0, 3, 0, 3, 0),
}
ASKED = {"crowded": (6, 3, 1), "local": (1, 0, 0), "rooms": (1, 12, 0), "mixed": (1, 0, 0), "attached": (3, 3, 0)}
"""Of which class new claims are."""

Key = tuple[type[Object], str]


@dataclass
class World:
    """All objects as they are now, and what has been reserved."""

    objects: dict[Key, Object] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    promised: dict[str, str] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        return replace(
            snapshot_of(self.objects.values()), reserved=dict(self.reserved), promised=dict(self.promised)
        )

    def lay_over(self, index: Index) -> Index:
        """What is reserved and promised, told to an index of the objects."""
        for key, size in self.reserved.items():
            index.reserve(key, size)
        for claim_uid, key in self.promised.items():
            index.promise(claim_uid, key)
        return index

    def of(self, kind: type[Any]) -> list[Any]:
        return [value for (kept, _), value in sorted(self.objects.items(), key=_by_key) if kept is kind]


def _by_key(entry: tuple[Key, Object]) -> tuple[str, str]:
    return entry[0][0].__name__, entry[0][1]


class Stream:
    """Changes the world event by event and tells `listeners`, which follow as an index does."""

    def __init__(self, seed: int, *listeners: Any, rare: bool = False) -> None:
        """With `rare`, half of the volumes name nodes too, and claims their node under old names; all else is as
        without."""
        self.random = Random(seed)
        self._rare = Random(seed) if rare else None
        self._nominations = Random(seed)
        self.flavour = FLAVOURS[seed % len(FLAVOURS)]
        # How much pods ask besides volumes: in many streams nothing, in some so much that hardly a node will do.
        self.demands = self.random.choice([0.0, 0.0, 0.15, 0.5])
        self.world = World()
        self.listeners = listeners
        self._made = 0
        for name in self.random.sample(CLASSES, 3):
            self.put(self._class(name))
        for name in NODES:
            if self.random.random() < 0.9:
                self.put(self._node(name))
        for place in range(self.random.choice([0, 5, 15, 25])):
            self.put(self._volume(f"v{place}"))
        if self.flavour == "rooms" or self.random.random() < 0.3:
            self.put(driver(name=DRIVERS[0]))
            for _ in range(self.random.randint(1, 10)):
                self.put(self._capacity())
        if self.flavour == "attached":
            for name in NODES:
                self.put(csi_node(name, csi_example_com=self.random.randint(1, 3)))
        for _ in range(self.random.choice([0, 0, 10, 30])):
            self.step()
        for place in range(self.random.choice([0, 3, 8]) if self.demands else 0):
            self.put(self._pod(f"q{place}"))

    # --- changes ----------------------------------------------------------------------------------------

    def put(self, value: Object) -> None:
        self.world.objects[type(value), value.meta.key] = value
        for listener in self.listeners:
            listener.put(value)

    def drop(self, kind: type[Object], key: str) -> None:
        self.world.objects.pop((kind, key), None)
        for listener in self.listeners:
            listener.drop(kind, key)

    def reserve(self, key: str, size: int) -> None:
        self.world.reserved[key] = size
        for listener in self.listeners:
            listener.reserve(key, size)

    def promise(self, claim_uid: str, key: str) -> None:
        self.world.promised[claim_uid] = key
        for listener in self.listeners:
            listener.promise(claim_uid, key)

    def assume(self, wanting: Pod, made: Attempt, profile: Profile, *, placed: bool | None = None) -> None:
        """Lay the decision over the objects, as the engine's picture does, and put the pod on its node.

        `placed`: whether the pod is put there; None: mostly.
        """
        if made.chosen is None:
            return
        snapshot = self.world.snapshot
        chosen = snapshot.nodes[made.chosen.node]
        _, held = assume_pod_volumes(snapshot, wanting, chosen, made.chosen.answer, profile=profile)
        for assumed in held.volumes:
            self.put(assumed.volume)
        for selected in held.claims:
            self.put(selected)
        for provision in made.chosen.answer.provisions:
            if provision.capacity is not None and provision.claim.meta.uid not in self.world.promised:
                key = provision.capacity.key
                self.reserve(key, self.world.reserved.get(key, 0) + provision.claim.size.value())
                self.promise(provision.claim.meta.uid, key)
        if self.random.random() < 0.7 if placed is None else placed:
            self.put(replace(wanting, node_name=made.chosen.node))

    def step(self) -> None:
        changes: list[tuple[int, Callable[[], None]]] = [
            (6, lambda: self.put(self._volume(self._name("v", 30)))),
            (4, lambda: self.put(self._claim(self._name("c", 8)))),
            (4, lambda: self.put(self._node(self.random.choice(NODES)))),
            (2, lambda: self.put(self._pod(self._name("p", 6)))),
            (6 if self.demands else 0, lambda: self.put(self._pod(self._name("q", 12)))),
            (1 if self.demands else 0, lambda: self.put(self._namespace())),
            (1, lambda: self.put(self._class(self.random.choice(CLASSES)))),
            (1 if self.flavour == "crowded" else 0, lambda: self.put(self._driver())),
            (2 if self.flavour in ("crowded", "attached") else 0, lambda: self.put(self._csi_node())),
            (2, lambda: self.put(self._capacity())),
            (4 if self.flavour == "attached" else 1, lambda: self.put(self._attachment())),
            (4 if self.flavour == "rooms" else 1, self._reserve),
            (5, self._drop),
            (2, self._free),
            (5 if self.flavour == "attached" else 2, self._bind),
        ]
        weights, actions = zip(*changes, strict=True)
        self.random.choices(actions, weights)[0]()

    def _drop(self) -> None:
        if self.world.objects:
            self.drop(*self.random.choice(list(self.world.objects)))

    def _free(self) -> None:
        claimed = [held for held in self.world.of(Volume) if held.claim_ref is not None]
        if claimed:
            self.put(replace(self.random.choice(claimed), claim_ref=None))

    def _bind(self) -> None:
        """A claim becomes fully bound, to a volume that exists or to one that does not."""
        claims = [held for held in self.world.of(Claim) if not held.volume_name]
        if claims:
            bound = self.random.choice(claims)
            target = self._name("v", 30)
            self.put(self._claim(bound.name, bound_to=target))
            if self.random.random() < 0.8:
                ref = ref_to(bound)
                self.put(self._volume(target, claim_ref=ref, phase="Bound", cls=bound.class_name))

    def _reserve(self) -> None:
        published = self.world.of(StorageCapacity)
        if published:
            self.reserve(self.random.choice(published).key, self.random.choice([0, GIB, 4 * GIB]))

    # --- objects ----------------------------------------------------------------------------------------

    def _name(self, prefix: str, count: int) -> str:
        return f"{prefix}{self.random.randrange(count)}"

    def _size(self) -> str:
        sizes = ["2Gi", "2Gi", "3Gi"] if self.flavour == "mixed" else ["1Gi", "2Gi", "2Gi", "3Gi", "5Gi", "5.5Gi"]
        return self.random.choice(sizes)

    def _modes(self) -> tuple[str, ...]:
        return self.random.choice([(RWO,), (ROX,), (RWO, ROX)] if self.flavour == "mixed" else MODES)

    def _node(self, name: str) -> Object:
        labels = {HOSTNAME: name}
        if self.random.random() < 0.85:
            labels[ZONE] = self.random.choice(ZONES)
        status = {}
        if self.random.random() < 0.2:
            status = {"allocatable": {f"attachable-volumes-csi-{DRIVERS[0]}": str(self.random.randint(0, 2))}}
        if not self.demands:
            return node(name, labels=labels, status=status)
        labels |= self.random.choice([{}, {"rack": "r1"}, {"rack": "r2", "disk": "ssd"}, {"disk": "hdd"}])
        status = {"allocatable": status.get("allocatable", {}) | wishes.allocatable(self.random)}
        return node(name, labels=labels, status=status, spec=wishes.node_spec(self.random))

    def _namespace(self) -> Object:
        metadata = {
            "name": self.random.choice(wishes.NAMESPACES),
            "labels": wishes.namespace_labels(self.random),
        }
        return read("Namespace", {"metadata": metadata})

    def _class(self, name: str) -> Object:
        mode = self.random.choices(["WaitForFirstConsumer", "Immediate", None], [40, 1, 1])[0]
        provisioner = {"local": "kubernetes.io/no-provisioner", "dyn": DRIVERS[0], "other": DRIVERS[1]}[name]
        zones = self.random.choice([None, [{ZONE: [self.random.choice(ZONES)]}]])
        return storage_class(name, mode=mode, provisioner=provisioner, topologies=zones)

    def _volume(self, name: str, **kw: Any) -> Volume:
        made, random = self._placed_volume(name, **kw), self._rare
        if random is None or random.random() < 0.5:
            return made
        field = Requirement("metadata.name", random.choice(["In", "NotIn"]), (random.choice(NODES),))
        required = None if made.node_affinity is None else made.node_affinity.required
        terms = (NodeTerm(),) if required is None else required.node_selector_terms
        named = NodeSelector(tuple(replace(term, match_fields=(field,)) for term in terms))
        return replace(made, node_affinity=VolumeNodeAffinity(required=named))

    def _placed_volume(self, name: str, **kw: Any) -> Volume:
        random = self.random
        kw.setdefault("cls", random.choices(CLASSES, [6, 2, 1] if self.flavour == "crowded" else [1, 0, 0])[0])
        kw.setdefault("phase", random.choices(["Available", "Released", "Pending"], [12, 1, 1])[0])
        kw["modes"] = self._modes()
        kw["labels"] = random.choice([{}, {}, {"tier": "ssd"}, {"tier": "hdd"}, {ZONE: random.choice(ZONES)}])
        kw["deleted"] = random.random() < 0.04
        kw["rv"] = self._rv()
        if "claim_ref" not in kw and random.random() < 0.1 and self.world.of(Claim):
            named = random.choice(self.world.of(Claim))
            kw["claim_ref"] = ref_to(named, uid=random.choice(["", None, "uid-of-another"]))
        if random.random() < 0.05:
            kw["volumeMode"] = "Block"
        host, zone = random.choice(NODES), random.choice(ZONES)
        disk = {"driver": random.choice(DRIVERS), "volumeHandle": name}
        places = ["host", "hosts", "zone", "not-zone", "anywhere", "nowhere"]
        match random.choices(places, PLACES[self.flavour])[0]:
            case "host":
                return local_volume(name, self._size(), host, **kw)
            case "hosts":
                both = affinity({"matchExpressions": [needs(HOSTNAME, "In", host, random.choice(NODES))]})
                return volume(name, self._size(), nodeAffinity=both, local={"path": "/mnt"}, **kw)
            case "zone":
                return volume(name, self._size(), nodeAffinity=on_zone(zone), csi=disk, **kw)
            case "not-zone":
                other = affinity({"matchExpressions": [needs(ZONE, "NotIn", zone)]})
                return volume(name, self._size(), nodeAffinity=other, csi=disk, **kw)
            case "anywhere":
                return volume(name, self._size(), csi=disk, **kw)
            case _:
                return volume(name, self._size(), nodeAffinity=affinity({}), csi=disk, **kw)

    def _claim(self, name: str, **kw: Any) -> Claim:
        random = self.random
        if random.random() < 0.2:
            operator = random.choices(["In", "Bogus"], [12, 1])[0]
            kw["selector"] = {"matchExpressions": [{"key": "tier", "operator": operator, "values": ["ssd"]}]}
        if random.random() < 0.08 and "bound_to" not in kw:
            kw["selected"] = random.choice([*NODES, ""])
        if random.random() < 0.03:
            kw["annotations"] = {"pv.kubernetes.io/rollback": "yes"}
        if self._rare is not None and self._rare.random() < 0.1 and "bound_to" not in kw:
            old = self._rare.choice(ALPHA_SELECTED_NODES)
            kw["annotations"] = {**kw.get("annotations", {}), old: self._rare.choice([*NODES, ""])}
        kw["deleted"] = random.random() < 0.02
        cls = random.choices([*CLASSES, "gone", None], [30, 12, 6, 1, 1])[0]
        size = random.choices([self._size(), None], [20, 1])[0]
        return claim(name, size, cls=cls, modes=self._modes(), rv=self._rv(), **kw)

    def _driver(self) -> Object:
        spec = {
            "storageCapacity": self.random.random() < 0.7,
            "preventPodSchedulingIfMissing": self.random.random() < 0.15,
        }
        return read("CSIDriver", {"metadata": {"name": self.random.choice(DRIVERS)}, "spec": spec})

    def _csi_node(self) -> Object:
        chosen = self.random.sample(DRIVERS, self.random.randint(0, 2))
        return csi_node(
            self.random.choice(NODES), **{d.replace(".", "_"): self.random.randint(0, 3) for d in chosen}
        )

    def _capacity(self) -> Object:
        random = self.random
        hosts: list[dict[str, Any]] = [{"matchLabels": {HOSTNAME: name}} for name in NODES]
        wide = [{}, {"matchLabels": {ZONE: "a"}}] if random.random() < 0.1 or self.flavour == "crowded" else []
        topology = random.choice([*hosts, *wide])
        size, largest = random.choice([None, "2Gi", "4Gi", "40Gi"]), random.choice([None, None, "3Gi"])
        return capacity(
            self._name("cap", 8), size, cls=random.choice(CLASSES[1:]), topology=topology, maximum=largest
        )

    def _attachment(self) -> Object:
        spec = {
            "attacher": self.random.choice(DRIVERS),
            "nodeName": self.random.choice(NODES),
            "source": {"persistentVolumeName": self._name("v", 30)},
        }
        return read("VolumeAttachment", {"metadata": {"name": self._name("a", 4)}, "spec": spec})

    def _pod(self, name: str) -> Pod:
        on = self.random.choice([*NODES, "", ""])
        phase = self.random.choices(["Running", "Succeeded"], [8, 1])[0]
        if name.startswith("q"):
            # Small ones that are there for others to meet.
            made = self._pod_of(name, namespace=self.random.choice(wishes.NAMESPACES), on=on, phase=phase)
        else:
            made = replace(self.wanting(name), node_name=on, phase=phase)
        return made if on else self._nominated(made)

    def _nominated(self, made: Pod) -> Pod:
        """Mostly about to be placed; some give way to pods that ask, whose priority is 0."""
        random = self._nominations
        return replace(made, nominated_node=random.choice([*NODES, ""]), priority=random.choice([-1, 0, 1]))

    def _pod_of(self, name: str, *claims: str, **kw: Any) -> Pod:
        if self.demands:
            kw |= {"labels": wishes.pod_labels(self.random), **wishes.pod_spec(self.random, self.demands)}
        made = pod(*claims, name=name, **kw)
        if self.demands and self.random.random() < 0.05:
            return replace(made, meta=replace(made.meta, deletion_timestamp="2026-01-01T00:00:00Z"))
        return made

    def ask(self, turn: int) -> Pod:
        """A pod to be scheduled, mostly one that comes with new claims of its own, alike more often than not."""
        random = self.random
        if random.random() < 0.25:
            return self.wanting(f"p{turn % 6}")
        if self.demands and random.random() < 0.4:
            return self._pod_of(f"p{turn % 6}")
        cls, modes = random.choices(CLASSES, ASKED[self.flavour])[0], self._modes()
        names = [f"c{turn}-{place}" for place in range(random.choices([1, 2, 3, 4], [4, 3, 3, 1])[0])]
        for name in names:
            if random.random() < 0.8:
                mine = self._modes() if self.flavour == "mixed" else modes
                self.put(claim(name, self._size(), cls=cls, modes=mine, rv=self._rv()))
            else:
                self.put(self._claim(name))
        return self._pod_of(f"p{turn % 6}", *names)

    def wanting(self, name: str) -> Pod:
        """A pod that uses some claims, mostly ones that exist, now and then one of them twice."""
        random = self.random
        known = [held.name for held in self.world.of(Claim)]
        names = random.sample(known, min(len(known), random.choices([0, 1, 2, 3, 4], [1, 5, 4, 4, 2])[0]))
        if random.random() < 0.05:
            names.append(self._name("c", 9))
        if names and random.random() < 0.05:
            names.append(names[0])
        disks: list[dict[str, Any]] = []
        if random.random() < 0.1:
            disk = {"pdName": self._name("d", 2), "readOnly": random.random() < 0.5}
            disks.append({"name": "disk", "gcePersistentDisk": disk})
        if random.random() < 0.05:
            disks.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}})
        return self._pod_of(name, *names, volumes=disks)

    def _rv(self) -> str:
        self._made += 1
        return str(self._made)
