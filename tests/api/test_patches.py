"""JSON patches and strategic merge patches, as tables: what was there, the patch, what is there then."""

from typing import Any

import pytest

from volsched.kube.patches import DiffersError, PatchError, json_patched
from volsched.kube.strategic_merge import strategic_merged

DOCUMENT = {"a": {"b": [1, 2, 3]}, "c~d": 1, "e/f": 2}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/x", "value": 1}, {**DOCUMENT, "x": 1}),
        ({"op": "add", "path": "/a/b/1", "value": 9}, {**DOCUMENT, "a": {"b": [1, 9, 2, 3]}}),
        ({"op": "add", "path": "/a/b/-", "value": 9}, {**DOCUMENT, "a": {"b": [1, 2, 3, 9]}}),
        ({"op": "add", "path": "/a/b/3", "value": 9}, {**DOCUMENT, "a": {"b": [1, 2, 3, 9]}}),
        ({"op": "remove", "path": "/a/b/0"}, {**DOCUMENT, "a": {"b": [2, 3]}}),
        ({"op": "remove", "path": "/c~0d"}, {"a": {"b": [1, 2, 3]}, "e/f": 2}),
        ({"op": "replace", "path": "/e~1f", "value": 5}, {**DOCUMENT, "e/f": 5}),
        ({"op": "copy", "from": "/a/b", "path": "/x"}, {**DOCUMENT, "x": [1, 2, 3]}),
        ({"op": "move", "from": "/a/b", "path": "/x"}, {"a": {}, "c~d": 1, "e/f": 2, "x": [1, 2, 3]}),
        ({"op": "test", "path": "/a/b/2", "value": 3}, DOCUMENT),
        ({"op": "replace", "path": "", "value": {}}, {}),
    ],
)
def test_json_patch(operation: Any, expected: Any) -> None:
    before = {"a": {"b": [1, 2, 3]}, "c~d": 1, "e/f": 2}
    assert json_patched(before, [operation]) == expected
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "/a/b/01", "value": 1},
        {"op": "add", "path": "/a/b/-1", "value": 1},
        {"op": "replace", "path": "/a/b/-", "value": 1},
        {"op": "add", "path": "x", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "move", "from": "/a", "path": "/a/b/0"},
        {"op": "copy", "path": "/x"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/c~0d/x", "value": 1},
        {"path": "/x"},
        7,
    ],
)
def test_a_json_patch_that_leads_nowhere_is_refused(operation: Any) -> None:
    with pytest.raises(PatchError):
        json_patched(DOCUMENT, [operation])


def test_true_is_not_one() -> None:
    with pytest.raises(DiffersError):
        json_patched({"a": 1}, [{"op": "test", "path": "/a", "value": True}])


def test_copies_of_copies_do_not_fill_the_memory() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 60
    with pytest.raises(PatchError, match="copies more than"):
        json_patched({"a": ["x" * 1000]}, doubling)


CONTAINERS = [{"name": "main", "image": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "side", "image": "b"}]


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        # mappings, as in a merge patch
        ({"nodeSelector": {"a": "1", "b": "2"}}, {"nodeSelector": {"a": None, "c": "3"}},
         {"nodeSelector": {"b": "2", "c": "3"}}),
        # lists with a key are merged item by item, also below each other
        ({"containers": CONTAINERS}, {"containers": [{"name": "main", "env": [{"name": "Y", "value": "2"}]}]},
         {"containers": [{**CONTAINERS[0], "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                         CONTAINERS[1]]}),
        ({"containers": CONTAINERS}, {"containers": [{"name": "side", "$patch": "delete"}]},
         {"containers": [CONTAINERS[0]]}),
        ({"containers": CONTAINERS}, {"containers": [{"name": "main", "$patch": "replace", "image": "z"}]},
         {"containers": [{"name": "main", "image": "z"}, CONTAINERS[1]]}),
        ({"containers": CONTAINERS}, {"containers": [{"$patch": "replace"}, {"name": "new"}]},
         {"containers": [{"name": "new"}]}),
        ({"containers": CONTAINERS}, {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
                                      "containers": [{"name": "main", "image": "z"}]},
         {"containers": [CONTAINERS[1], {**CONTAINERS[0], "image": "z"}]}),
        ({}, {"containers": [{"name": "new", "env": None}]}, {"containers": [{"name": "new"}]}),
        # lists without one are replaced
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        # keys that go with a choice
        ({"volumes": [{"name": "v", "emptyDir": {}}]},
         {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]},
         {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
        ({"affinity": {"nodeAffinity": {}}}, {"affinity": {"$patch": "delete"}}, {}),
        ({"affinity": {"nodeAffinity": {}}}, {"affinity": {"$patch": "replace", "podAffinity": {}}},
         {"affinity": {"podAffinity": {}}}),
    ],
)  # fmt: skip
def test_strategic_merge_patch_of_a_pod(before: Any, patch: Any, after: Any) -> None:
    assert strategic_merged({"spec": before}, {"spec": patch}, "V1Pod") == {"spec": after}


def test_finalizers_are_a_set() -> None:
    before = {"metadata": {"finalizers": ["a", "b"]}}
    added = strategic_merged(before, {"metadata": {"finalizers": ["b", "c"]}}, "V1PersistentVolume")
    assert added == {"metadata": {"finalizers": ["a", "b", "c"]}}
    taken = strategic_merged(before, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, "V1Node")
    assert taken == {"metadata": {"finalizers": ["b"]}}


@pytest.mark.parametrize(
    "patch", [{"containers": [{"image": "x"}]}, {"containers": ["x"]}, {"affinity": {"$patch": "x"}}]
)
def test_a_strategic_patch_that_cannot_be_applied_is_refused(patch: Any) -> None:
    with pytest.raises(PatchError):
        strategic_merged({"spec": {"containers": CONTAINERS}}, {"spec": patch}, "V1Pod")
