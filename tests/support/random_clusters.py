"""Random small clusters for the property tests: dense enough that volumes, claims and limits collide."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.support.objects import (
    ROX,
    RWO,
    capacity,
    claim,
    csi_node,
    driver,
    in_zone,
    local_volume,
    on_zone,
    pod,
    ref_to,
    storage_class,
    volume,
)
from volsched.kube.meta import ZONE
from volsched.kube.object_values import Object
from volsched.kube.storage import Claim, StorageClass, Volume
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of

CLASSES = ("local", "dyn", "other")
DRIVERS = ("csi.example.com", "csi.other.com")
GIB = 2**30
MODES = ((RWO,), (ROX,), (RWO, ROX))
sizes = st.integers(1, 6).map(lambda n: f"{n}Gi")
labels = st.fixed_dictionaries({}, optional={"tier": st.sampled_from(["ssd", "hdd"])})
selectors = st.sampled_from([None, None, {"matchLabels": {"tier": "ssd"}}])


@dataclass(frozen=True)
class Cluster:
    objects: tuple[Object, ...]
    pod: Pod
    reserved: Mapping[str, int]

    @property
    def snapshot(self) -> Snapshot:
        return replace(snapshot_of(self.objects), reserved=self.reserved)


@st.composite
def claims(draw: st.DrawFn, name: str) -> Claim:
    spec: dict[str, Any] = {}
    selector = draw(selectors)
    if selector is not None:
        spec["selector"] = selector
    selected = draw(st.sampled_from([None, None, None, None, "n1"]))
    cls, modes = draw(st.sampled_from(CLASSES)), draw(st.sampled_from(MODES))
    return claim(name, draw(sizes), cls=cls, modes=modes, selected=selected, **spec)


@st.composite
def volumes(draw: st.DrawFn, name: str, wanting: list[Claim]) -> Volume:
    kw: dict[str, Any] = {
        "cls": draw(st.sampled_from(CLASSES)),
        "modes": draw(st.sampled_from(MODES)),
        "labels": draw(labels),
    }
    if wanting and draw(st.integers(0, 5)) == 0:
        kw["claim_ref"] = ref_to(draw(st.sampled_from(wanting)), uid=draw(st.sampled_from(["", "uid-of-another"])))
    match draw(st.sampled_from(["n1", "n2", "zone", "anywhere"])):
        case "zone":
            return volume(name, draw(sizes), nodeAffinity=on_zone("a"), csi=_disk(draw, name), **kw)
        case "anywhere":
            return volume(name, draw(sizes), csi=_disk(draw, name), **kw)
        case host:
            return local_volume(name, draw(sizes), host, **kw)


def _disk(draw: st.DrawFn, name: str) -> dict[str, str]:
    return {"driver": draw(st.sampled_from(DRIVERS)), "volumeHandle": name}


@st.composite
def classes(draw: st.DrawFn) -> list[StorageClass]:
    zones = draw(st.sampled_from([None, [{ZONE: ["a"]}]]))
    return [
        storage_class("local"),
        storage_class("dyn", provisioner=DRIVERS[0], topologies=zones),
        storage_class("other", provisioner=DRIVERS[1]),
    ]


@st.composite
def clusters(draw: st.DrawFn, *, max_claims: int = 4, couplings: bool = True) -> Cluster:
    """Two nodes in two zones. `couplings`: published capacity and attach limits may bind claims together."""
    wanting = [draw(claims(f"c{i}")) for i in range(draw(st.integers(1, max_claims)))]
    supply = [draw(volumes(f"v{i}", wanting)) for i in range(draw(st.integers(0, 6)))]
    objects: list[Object] = [in_zone("n1", "a"), in_zone("n2", "b"), *draw(classes()), *wanting, *supply]
    reserved: dict[str, int] = {}
    if couplings and draw(st.booleans()):
        objects += [driver(name=name) for name in draw(st.sets(st.sampled_from(DRIVERS)))]
        for index in range(draw(st.integers(0, 3))):
            largest = draw(st.sampled_from([None, "2Gi", "9Gi"]))
            size, cls = f"{draw(st.integers(1, 9))}Gi", draw(st.sampled_from(CLASSES))
            objects.append(capacity(f"cap{index}", size, cls=cls, maximum=largest))
            reserved[f"csi/cap{index}"] = draw(st.sampled_from([0, 0, GIB, 3 * GIB]))
    if couplings and draw(st.booleans()):
        limits = {name.replace(".", "_"): draw(st.integers(0, 3)) for name in DRIVERS}
        objects.append(csi_node("n1", **limits))
    return Cluster(tuple(objects), pod(*(held.name for held in wanting)), reserved)
