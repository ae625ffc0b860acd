"""Random small clusters for the property tests: dense enough that volumes, claims and limits collide."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.objects import (
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
from volsched.core.snapshot import Snapshot, snapshot_of
from volsched.model.kinds import Object
from volsched.model.meta import ZONE
from volsched.model.storage import Claim, StorageClass, Volume
from volsched.model.workloads import Pod

CLASSES = ("local", "dyn")
MODES = ((RWO,), (ROX,), (RWO, ROX))
sizes = st.integers(1, 6).map(lambda n: f"{n}Gi")
labels = st.fixed_dictionaries({}, optional={"tier": st.sampled_from(["ssd", "hdd"])})
selectors = st.sampled_from([None, None, {"matchLabels": {"tier": "ssd"}}])


@dataclass(frozen=True)
class Cluster:
    objects: tuple[Object, ...]
    pod: Pod

    @property
    def snapshot(self) -> Snapshot:
        return snapshot_of(self.objects)


@st.composite
def claims(draw: st.DrawFn, name: str) -> Claim:
    spec: dict[str, Any] = {}
    selector = draw(selectors)
    if selector is not None:
        spec["selector"] = selector
    return claim(name, draw(sizes), cls=draw(st.sampled_from(CLASSES)), modes=draw(st.sampled_from(MODES)), **spec)


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
            return volume(name, draw(sizes), nodeAffinity=on_zone("a"), **kw)
        case "anywhere":
            return volume(name, draw(sizes), **kw)
        case host:
            return local_volume(name, draw(sizes), host, **kw)


@st.composite
def classes(draw: st.DrawFn) -> list[StorageClass]:
    zones = draw(st.sampled_from([None, [{ZONE: ["a"]}]]))
    return [storage_class("local"), storage_class("dyn", provisioner="csi.example.com", topologies=zones)]


@st.composite
def clusters(draw: st.DrawFn, *, max_claims: int = 4, couplings: bool = True) -> Cluster:
    """Two nodes in two zones. `couplings`: published capacity and attach limits may bind claims together."""
    wanting = [draw(claims(f"c{i}")) for i in range(draw(st.integers(1, max_claims)))]
    supply = [draw(volumes(f"v{i}", wanting)) for i in range(draw(st.integers(0, 6)))]
    objects: list[Object] = [in_zone("n1", "a"), in_zone("n2", "b"), *draw(classes()), *wanting, *supply]
    if couplings and draw(st.booleans()):
        objects.append(driver())
        objects += [capacity(f"cap{i}", f"{draw(st.integers(1, 9))}Gi") for i in range(draw(st.integers(0, 2)))]
    if couplings and draw(st.booleans()):
        limits = {"csi_example_com": draw(st.integers(0, 3))}
        objects.append(csi_node("n1", **limits))
    return Cluster(tuple(objects), pod(*(held.name for held in wanting)))
