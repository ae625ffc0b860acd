"""Changes of manifests: what is named changes, what is empty goes, all else stays, and so does the original."""

from volsched.pv_controller.rules.bind_writes import with_annotations, with_finalizers, with_spec, with_status

GIVEN = {
    "kind": "X",
    "metadata": {"name": "x", "annotations": {"a": "1"}, "finalizers": ["f"], "labels": {}},
    "spec": {"kept": 1, "dropped": 2},
}


def test_a_field_that_is_none_is_removed() -> None:
    assert with_spec(GIVEN, dropped=None, added=3)["spec"] == {"kept": 1, "added": 3}
    assert GIVEN["spec"] == {"kept": 1, "dropped": 2}


def test_a_part_that_is_missing_is_made() -> None:
    assert with_status(GIVEN, phase="Bound") == {**GIVEN, "status": {"phase": "Bound"}}


def test_the_last_annotation_and_the_last_finalizer_take_their_field_along() -> None:
    assert with_annotations(GIVEN, drop=("a",))["metadata"] == {"name": "x", "finalizers": ["f"], "labels": {}}
    assert with_finalizers(GIVEN, ())["metadata"] == {"name": "x", "annotations": {"a": "1"}, "labels": {}}


def test_annotations_are_dropped_before_others_are_added() -> None:
    changed = with_annotations(GIVEN, drop=("a", "absent"), add={"a": "2", "b": "3"})
    assert changed["metadata"]["annotations"] == {"a": "2", "b": "3"}
    assert with_annotations({"metadata": {}}, add={"a": "1"}) == {"metadata": {"annotations": {"a": "1"}}}
