"""Which VolumeAttachments a node makes, waits for and gives up."""

import pytest

from tests.node_agent.node_scenes import LOCAL, attachment, claim, disk, mounts, node, pod
from tests.support.objects import ROX, RWO, RWX, volume
from volsched.kube.storage import VolumeAttachment
from volsched.node_agent.rules.admission import (
    NODE_UID,
    attach_problem,
    attachment_name,
    attachment_of,
    is_attached,
    is_exclusive,
    to_detach,
    volumes_to_attach,
)

HERE, THERE = node(), node("n2", uid="uid-of-n2")
AGAIN = node(uid="uid-of-another-n1")
DISK = volume("pv")
SHARED = volume("shared", modes=(RWO, RWX))


def test_only_csi_volumes_are_attached_and_each_once() -> None:
    given, held = pod("data", "data", "local", "missing"), claim()
    local = claim("local", bound_to="pv-local")
    both = (held, disk(held))
    entries = mounts(given, both, both, (local, disk(local, **LOCAL)), (None, None))
    assert [it.name for it in volumes_to_attach(entries)] == ["pv"]


@pytest.mark.parametrize(
    ("modes", "exclusive"),
    [((RWO,), True), (("ReadWriteOncePod",), True), ((RWO, ROX), False), ((RWX,), False), ((), False)],
)
def test_which_volumes_one_node_at_a_time_may_have(modes: tuple[str, ...], exclusive: bool) -> None:
    assert is_exclusive(volume(modes=modes)) is exclusive


def test_an_exclusive_volume_has_one_name_wherever_it_is() -> None:
    assert attachment_name(DISK, HERE) == attachment_name(DISK, THERE)
    names = {attachment_name(SHARED, it) for it in (HERE, THERE, AGAIN)}
    assert len(names) == 3
    assert attachment_name(DISK, HERE) != attachment_name(volume("other"), HERE)


def test_an_attachment_says_for_which_node_it_is() -> None:
    made = attachment_of(DISK, HERE)
    assert made["spec"] == {
        "attacher": "csi.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv"},
    }  # fmt: skip
    assert made["metadata"]["annotations"] == {NODE_UID: "uid-of-n1"}


@pytest.mark.parametrize(
    ("held", "attached", "said"),
    [
        ([], False, None),
        ([attachment(DISK, HERE)], True, None),
        ([attachment(DISK, HERE, deleted=True)], False, "an earlier node"),
        ([attachment(DISK, AGAIN)], False, "an earlier node"),
        ([attachment(DISK, THERE)], False, 'Multi-Attach error for PersistentVolume "pv"'),
        ([attachment(DISK, THERE, ours=False)], False, "Multi-Attach error"),
        ([attachment(DISK, HERE, ours=False)], False, None),
    ],
    ids=["none", "here", "going", "of an earlier node", "elsewhere", "elsewhere, not ours", "here, not ours"],
)
def test_an_exclusive_volume_waits_until_it_is_free(
    held: list[VolumeAttachment], attached: bool, said: str | None
) -> None:
    assert is_attached(DISK, HERE, held) is attached
    problem = attach_problem(DISK, HERE, held) if not attached else None
    assert (problem is None) if said is None else (problem is not None and said in problem)


def test_a_shared_volume_waits_for_nobody() -> None:
    assert attach_problem(SHARED, HERE, [attachment(SHARED, THERE)]) is None
    assert not is_attached(SHARED, HERE, [attachment(SHARED, THERE)])


@pytest.mark.parametrize(
    ("held", "in_use", "detached"),
    [
        (attachment(DISK, HERE), {"pv"}, False),
        (attachment(DISK, HERE), {"other"}, True),
        (attachment(DISK, HERE, deleted=True), set(), False),
        (attachment(DISK, HERE, ours=False), set(), False),
        (attachment(DISK, AGAIN), {"pv"}, True),
    ],
    ids=["in use", "not in use", "going already", "not ours", "of an earlier node"],
)
def test_what_nobody_needs_is_detached(held: VolumeAttachment, in_use: set[str], detached: bool) -> None:
    assert to_detach([held], HERE, in_use) == ([held] if detached else [])


def test_what_is_in_use_on_a_node_that_is_gone_stays() -> None:
    held = attachment(DISK, HERE)
    assert to_detach([held], None, {"pv"}) == []
    assert to_detach([held], None, set()) == [held]
