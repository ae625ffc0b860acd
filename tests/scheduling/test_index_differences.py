"""Nodes that look alike to the index must not be treated as equal where the rules see a difference."""

from tests.support.objects import (
    BY_NAME,
    ROX,
    RWO,
    capacity,
    claim,
    csi_node,
    driver,
    dynamic_class,
    local_volume,
    node,
    pod,
    read,
    storage_class,
    volume,
)
from volsched.kube.meta import HOSTNAME
from volsched.kube.workloads import Pod
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import PARITY

DRIVER = "csi.example.com"


def chosen(index: Index, wanting: Pod) -> str | None:
    made = index.decide(wanting)
    expected = attempt(index.snapshot, wanting, profile=index.profile)
    assert made.status == expected.status
    return None if made.chosen is None else made.chosen.node


def room(name: str) -> object:
    return capacity(name, "8Gi", topology={"matchLabels": {HOSTNAME: name}})


def test_equal_rooms_differ_once_one_of_them_is_reserved() -> None:
    index = Index(
        [node("n1"), node("n2"), dynamic_class(), driver(), claim("data", "5Gi", cls="dyn")], profile=BY_NAME
    )
    index.put(room("n1"))  # type: ignore[arg-type]
    index.put(room("n2"))  # type: ignore[arg-type]
    assert chosen(index, pod("data")) == "n1"
    index.reserve("csi/n1", 5 * 2**30)
    assert chosen(index, pod("data")) == "n2"


def test_a_name_between_equal_sizes_decides_for_greedy() -> None:
    """On n1 the small claim takes the only volume that the other one could use; on n2 a name prevents it."""
    index = Index([node("n1"), node("n2"), storage_class()], profile=PARITY)
    index.put(claim("small", "1Gi", modes=(RWO,)))
    index.put(claim("picky", "2Gi", modes=(RWO, ROX)))
    index.put(local_volume("a", "2Gi", "n1", modes=(RWO, ROX)))
    index.put(local_volume("z", "2Gi", "n2", modes=(RWO, ROX)))
    index.put(volume("m", "2Gi", modes=(RWO,), local={"path": "/shared"}))
    assert chosen(index, pod("small", "picky")) == "n2"


def test_a_volume_that_appears_takes_the_slot_of_those_who_use_it() -> None:
    index = Index([node("n1"), node("n2"), storage_class(), claim("data", "1Gi")], profile=BY_NAME)
    for name in ("n1", "n2"):
        index.put(csi_node(name, csi_example_com=1))
        index.put(volume(f"for-{name}", "1Gi", csi={"driver": DRIVER, "volumeHandle": name}))
    index.put(claim("theirs", bound_to="late"))
    index.put(pod("theirs", name="other", on="n1", phase="Running"))
    assert chosen(index, pod("data")) == "n1"
    index.put(volume("late"))
    assert chosen(index, pod("data")) == "n2"


def test_a_disk_that_is_attached_already_needs_no_slot() -> None:
    """Both nodes are full, but n2 is so with the pod's own disk."""
    index = Index(
        [node("n1"), node("n2"), storage_class(), claim("mine", bound_to="own"), volume("own")], profile=BY_NAME
    )
    index.put(volume("foreign"))
    for name, disk in (("n1", "foreign"), ("n2", "own")):
        index.put(csi_node(name, csi_example_com=1))
        spec = {"attacher": DRIVER, "nodeName": name, "source": {"persistentVolumeName": disk}}
        index.put(read("VolumeAttachment", {"metadata": {"name": f"at-{name}"}, "spec": spec}))
    assert chosen(index, pod("mine")) == "n2"
