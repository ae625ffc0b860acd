"""What must hold before a claim is mounted, row by row."""

from dataclasses import replace
from typing import Any

import pytest

from tests.node_agent.node_scenes import LOCAL, claim, disk, mounts, node, pod
from tests.support.objects import needs, on_zone, read
from volsched.kube.meta import ZONE, OwnerReference
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Pod
from volsched.node_agent.rules.admission import mount_problem

HELD = claim()
DISK = disk(HELD, **LOCAL)
FIELDS_ONLY = {"required": {"nodeSelectorTerms": [{"matchFields": [needs("metadata.name", "In", "other")]}]}}
IN_Z2 = disk(HELD, nodeAffinity=on_zone("z2"), **LOCAL)
NOT_OURS = replace(DISK, claim_ref=replace(DISK.claim_ref, uid="another")) if DISK.claim_ref else DISK


@pytest.mark.parametrize(
    ("held", "volume", "said"),
    [
        (HELD, DISK, None),
        (None, None, '"db/data" does not exist; create it'),
        (claim(phase="Pending"), DISK, '"db/data" is Pending, not Bound'),
        (claim(phase="Lost"), DISK, '"db/data" is Lost, not Bound'),
        (claim(bound_to=None, phase="Bound"), None, "not Bound"),
        (claim(deleted=True, finalizer=False), DISK, '"db/data" is being deleted'),
        (claim(deleted=True), DISK, None),
        (HELD, None, 'PersistentVolume "pv" of claim "db/data" does not exist'),
        (HELD, NOT_OURS, 'PersistentVolume "pv" is not bound to claim "db/data"'),
        (HELD, replace(DISK, claim_ref=None), 'PersistentVolume "pv" is not bound to claim "db/data"'),
        (HELD, IN_Z2, 'the node affinity of PersistentVolume "pv" excludes node "n1"'),
        (HELD, disk(HELD, nodeAffinity=on_zone("z1"), **LOCAL), None),
        (HELD, disk(HELD, nodeAffinity=FIELDS_ONLY, **LOCAL), None),
    ],
    ids=[
        "all is well", "no claim", "pending", "lost", "no volume name", "deleted", "deleted and protected",
        "no volume", "volume of another claim", "volume of nobody", "out of reach", "within reach",
        "only labels count",
    ],
)  # fmt: skip
def test_a_claim_is_mounted_only_if_every_row_holds(held: Claim | None, volume: Volume, said: str | None) -> None:
    given = pod("data")
    problem = mount_problem(given, node(**{ZONE: "z1"}), mounts(given, (held, volume)))
    if said is None:
        assert problem is None
    else:
        assert problem is not None
        assert said in problem


def test_the_first_claim_with_a_problem_is_named() -> None:
    given = pod("data", "more")
    problem = mount_problem(given, node(), mounts(given, (HELD, DISK), (None, None)))
    assert problem is not None
    assert "db/more" in problem


def test_a_claim_that_nobody_will_bind_says_what_to_do() -> None:
    given = pod("data")
    problem = mount_problem(given, node(), mounts(given, (claim(bound_to=None), None)))
    assert problem is not None
    assert "without spec.nodeName" in problem
    assert 'node "n1"' in problem


def ephemeral() -> Pod:
    template: dict[str, Any] = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    made: Pod = read(
        "Pod", {"metadata": {"name": "app", "namespace": "db", "uid": "uid-app"}, "spec": {"volumes": volumes}}
    )
    return made


def test_an_ephemeral_claim_must_be_the_pods_own() -> None:
    held, given = claim("app-scratch"), ephemeral()
    owner = OwnerReference(kind="Pod", name="app", uid="uid-app", controller=True)
    owned = replace(held, meta=replace(held.meta, owner_references=(owner,)))
    assert mount_problem(given, node(), mounts(given, (owned, disk(owned, **LOCAL)))) is None
    stranger = mount_problem(given, node(), mounts(given, (held, disk(held, **LOCAL))))
    assert stranger is not None
    assert "pod is not owner" in stranger
    missing = mount_problem(given, node(), mounts(given, (None, None)))
    assert missing is not None
    assert "wait for it" in missing
