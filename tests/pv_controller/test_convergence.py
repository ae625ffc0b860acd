"""From any legal state, through crashes and refused writes, back-pointers agree after few syncs."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pv_controller.controller_world import (
    CrashError,
    Object,
    World,
    immediate,
    provisioned_pv,
    pv,
    pvc,
    ref,
    sc,
    world,
)
from tests.support.extent import extended, extent
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, ROLLBACK
from volsched.pv_controller.rules import CLAIM, VOLUME

pytestmark = extended

CLAIMS = ("a", "b", "c")
VOLUMES = ("v1", "v2", "v3", "v4")
ROUNDS = 6
"""Enough for every state: a volume becomes Available, is bound, its rival is released and reclaimed."""

marks = st.sets(st.sampled_from([BIND_COMPLETED, BOUND_BY_CONTROLLER, ROLLBACK]))


@st.composite
def claims(draw: st.DrawFn, name: str) -> Object:
    volume = draw(st.sampled_from(["", "", "gone", *VOLUMES]))
    state = draw(st.sampled_from([None, "Clean", "Dirty"]))
    deleted = draw(st.booleans()) and draw(st.booleans())
    return pvc(
        name,
        cls=draw(st.sampled_from(["now", "wait"])),
        size=draw(st.sampled_from(["5Gi", "10Gi"])),
        volume=volume,
        phase=draw(st.sampled_from(["Pending", "Bound", "Lost"])),
        notes=dict.fromkeys(draw(marks), "yes"),
        deleted=deleted,
        finalizers=("kubernetes.io/pvc-protection",),
        status={} if state is None else {"dataState": state},
    )


@st.composite
def volumes(draw: st.DrawFn, name: str) -> Object:
    owner = draw(st.sampled_from([None, "gone", *CLAIMS]))
    uid = draw(st.sampled_from(["", "uid-old", f"uid-{owner}", f"rollback-uid-{owner}"]))
    make = draw(st.sampled_from([pv, provisioned_pv]))
    notes = {BOUND_BY_CONTROLLER: "yes"} if draw(st.booleans()) else {}
    return make(
        name,
        cls=draw(st.sampled_from(["now", "wait"])),
        size=draw(st.sampled_from(["5Gi", "20Gi"])),
        phase=draw(st.sampled_from(["Pending", "Available", "Bound", "Released", "Failed"])),
        policy=draw(st.sampled_from(["Retain", "Delete", "Recycle"])),
        ref=None if owner is None else ref(owner, uid=uid),
        notes=notes,
        finalizers=("kubernetes.io/pv-protection",),
        volumeMode=draw(st.sampled_from(["Filesystem", "Filesystem", "Block"])),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    objects = [draw(claims(name)) for name in CLAIMS[: draw(st.integers(1, 3))]]
    objects += [draw(volumes(name)) for name in VOLUMES[: draw(st.integers(0, 4))]]
    return world(*objects, immediate("now", provisioner="csi.example.com"), sc())


def check_pointers(after: World) -> None:
    found = {key: after.claim(key) for key in after.server.of_kind(CLAIM)}
    by_uid = {claim.meta.uid: claim for claim in found.values()}
    holders: dict[str, str] = {}
    for name in after.server.of_kind(VOLUME):
        volume = after.volume(name)
        owner = by_uid.get(volume.claim_ref.uid) if volume.claim_ref is not None else None
        if volume.phase == "Bound":
            assert owner is not None, f"{name} is bound to nobody"
            # A volume that was reserved for a claim and does not fit it keeps its phase: only people can help.
            assert owner.volume_name in (name, ""), f"{name} is bound to a claim that is bound elsewhere"
            if owner.volume_name == name:
                assert owner.meta.uid not in holders, f"two volumes are bound to {owner.key}"
                holders[owner.meta.uid] = name
        elif volume.phase == "Available":
            assert volume.claim_ref is None or volume.claim_ref.uid == "" or owner is not None
    for claim in found.values():
        if BIND_COMPLETED in claim.meta.annotations and claim.phase == "Bound":
            assert holders.get(claim.meta.uid) == claim.volume_name, f"{claim.key} is bound to nothing"
        if ROLLBACK in claim.meta.annotations:
            # Only where a volume that a provisioner must delete is still there.
            assert claim.volume_name == ""


def no_data_was_lost(before: dict[Any, Any], after: World) -> None:
    """Storage is touched only where the claim that the volume belonged to is not bound to it."""
    bound = {
        stored["spec"]["volumeName"]: stored["metadata"]["uid"]
        for (kind, _), stored in before.items()
        if kind == CLAIM
        and stored["spec"].get("volumeName")
        and BIND_COMPLETED in stored["metadata"]["annotations"]
        and ROLLBACK not in stored["metadata"]["annotations"]
    }
    for _, name, _ in after.calls:
        given = before[VOLUME, name]["spec"].get("claimRef") or {}
        assert given.get("uid", "") != bound.get(name, "nobody"), f"{name} was in use"


@settings(max_examples=extent(50, 200), deadline=None)
@given(worlds())
def test_back_pointers_agree_after_few_rounds(after: World) -> None:
    before = dict(after.server.objects)
    assert after.settle() <= ROUNDS
    check_pointers(after)
    no_data_was_lost(before, after)


@settings(max_examples=extent(38, 150), deadline=None)
@given(worlds(), st.lists(st.integers(1, 6), max_size=4))
def test_crashes_in_between_change_nothing_of_that(after: World, crashes: list[int]) -> None:
    before = dict(after.server.objects)
    for writes in crashes:
        after.crash_after_writes = after._writes + writes
        with suppress(CrashError):
            after.settle()
    after.crash_after_writes = None
    after._started.clear()
    assert after.settle() <= ROUNDS
    check_pointers(after)
    no_data_was_lost(before, after)


@settings(max_examples=extent(20, 80), deadline=None)
@given(worlds(), st.lists(st.tuples(st.sampled_from(["update", "get"]), st.integers(0, 8)), max_size=4))
def test_refused_calls_in_between_change_nothing_of_that(after: World, faults: list[tuple[str, int]]) -> None:
    for verb, skip in faults:
        for resource in ("persistentvolumes", "persistentvolumeclaims"):
            after.fail(verb, resource, skip=skip, error="conflict")
    with suppress(AssertionError):
        after.settle(rounds=3)
    after.server.faults.clear()
    assert after.settle() <= ROUNDS
    check_pointers(after)
