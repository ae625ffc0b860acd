"""The private caches: older versions are ignored, and every index follows every change."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import KEY, Object, pod, pv, pvc, ref, sc
from volsched.kube.quantity import ZERO, parse_quantity
from volsched.pv_controller.rules import CLAIM, VOLUME, Caches, ParsedObject

RWO = ("ReadWriteOnce",)


def at(version: str, given: Object) -> Object:
    given[1]["metadata"]["resourceVersion"] = version
    return given


def names(found: Any) -> list[str]:
    return sorted(held.meta.key for held in found)


@pytest.mark.parametrize(("version", "taken"), [("9", False), ("10", True), ("11", True)])
def test_an_older_version_is_ignored_and_the_same_one_passes(version: str, taken: bool) -> None:
    caches = Caches([at("10", pvc(volume="old"))])
    assert caches.store(*at(version, pvc(volume="new"))) is taken
    held = caches.claim(KEY)
    assert held is not None
    assert held.value.volume_name == ("new" if taken else "old")


def test_a_volume_is_found_by_what_it_is_now() -> None:
    caches = Caches([at("1", pv())])
    assert names(caches.free_volumes("wait", RWO, ZERO)) == ["pv"]
    caches.store(*at("2", pv(ref=ref(), modes=("ReadOnlyMany",))))
    assert names(caches.free_volumes("wait", RWO, ZERO)) == []
    assert names(caches.volumes_reserved_for(KEY)) == ["pv"]
    assert list(caches.mode_groups()) == [("ReadOnlyMany",)]
    caches.store(*at("3", pv(cls="other")))
    assert names(caches.volumes_reserved_for(KEY)) == []
    assert names(caches.free_volumes("other", RWO, ZERO)) == ["pv"]


def test_free_volumes_come_by_size_and_then_by_name_and_none_too_small() -> None:
    sizes = {"d": "9Gi", "c": "9Gi", "a": "20Gi", "b": "5Gi"}
    caches = Caches(pv(name, size=size) for name, size in sizes.items())
    asked = caches.free_volumes("wait", RWO, parse_quantity("6Gi"))
    assert [held.value.name for held in asked] == ["c", "d", "a"]
    caches.store(*pv("d", size="30Gi"))
    caches.drop(VOLUME, "c")
    assert [held.value.name for held in caches.free_volumes("wait", RWO, ZERO)] == ["b", "a", "d"]


def test_a_dropped_volume_leaves_no_trace() -> None:
    caches = Caches([pv(ref=ref()), pv("free")])
    dropped = caches.drop(VOLUME, "pv")
    assert isinstance(dropped, ParsedObject)
    assert dropped.value.claim_ref.name == "data"
    caches.drop(VOLUME, "free")
    assert list(caches.mode_groups()) == []
    assert (caches.keys(VOLUME), caches.volume("pv"), caches.drop(VOLUME, "pv")) == ([], None, None)


def test_groups_are_named_by_each_mode_once_and_in_one_order() -> None:
    caches = Caches([pv("a", modes=("ReadOnlyMany", "ReadWriteOnce", "ReadOnlyMany")), pv("b", modes=("Odd",))])
    assert set(caches.mode_groups()) == {("ReadWriteOnce", "ReadOnlyMany"), ()}


def test_pods_are_found_by_the_claims_they_mount() -> None:
    caches = Caches([pod("a"), pod("b", claim="other"), pod("da", ephemeral="ta")])
    assert names(caches.pods_using(KEY)) == ["db/a"]
    assert names(caches.pods_using("db/da-ta")) == ["db/da"]
    caches.store(*pod("a", claim="other"))
    assert names(caches.pods_using(KEY)) == []
    caches.drop("Pod", "db/b")
    assert names(caches.pods_using("db/other")) == ["db/a"]


def test_classes_are_listed_and_found_by_name() -> None:
    caches = Caches([sc("b"), sc("a"), pvc()])
    assert names(caches.classes()) == ["a", "b"]
    assert caches.storage_class("c") is None
    assert caches.keys(CLAIM) == [KEY]
