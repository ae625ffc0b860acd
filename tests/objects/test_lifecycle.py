"""The guarantees of an object store, through the events that the decisions answer."""

from typing import Any

import pytest

from volsched.kube.kinds import KINDS
from volsched.log.commands import ConflictError
from volsched.log.events.catalogue import check_payload
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, evolve
from volsched.objects.rules.lifecycle import create_object, delete_object, update_object
from volsched.objects.rules.object_events import AlreadyExistsError, InvalidError, NotFoundError

CLAIM = KINDS["PersistentVolumeClaim"]
NODE = KINDS["Node"]
NOW = "2026-11-16T12:00:00Z"


def claim(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "db", **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Filesystem",
        },
    }


def after(state: ObjectState | None, event: NewEvent | None, *, position: int) -> ObjectState:
    assert event is not None
    noun = event.stream.partition("/")[0]
    check_payload(event.type, noun, event.data)
    version = (state.version if state else 0) + 1
    become = evolve(state, type_=event.type, version=version, position=position, at=0, data=event.data)
    assert isinstance(become, ObjectState)
    return become


def created(**metadata: Any) -> ObjectState:
    return after(None, create_object(None, CLAIM, claim(**metadata), uid="u1", now=NOW), position=7)


def stored(state: ObjectState) -> dict[str, Any]:
    assert state.manifest is not None
    return {**state.manifest}


def test_a_new_object_gets_uid_time_protection_and_a_pending_phase() -> None:
    raw = claim(uid="mine", resourceVersion="3", deletionTimestamp=NOW) | {"status": {"phase": "Bound"}}
    state = after(None, create_object(None, CLAIM, raw, uid="u1", now=NOW), position=7)
    metadata = stored(state)["metadata"]
    assert (metadata["uid"], metadata["creationTimestamp"], state.rv) == ("u1", NOW, 7)
    assert metadata["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "deletionTimestamp" not in metadata
    assert stored(state)["status"] == {"phase": "Pending"}


def test_an_existing_name_is_refused_and_a_deleted_one_may_be_used_again() -> None:
    state = created()
    with pytest.raises(AlreadyExistsError, match='"db/data" already exists'):
        create_object(state, CLAIM, claim(), uid="u2", now=NOW)
    gone = after(state, NewEvent(stream="claim/db/data", type="ClaimDeleted"), position=8)
    again = after(gone, create_object(gone, CLAIM, claim(), uid="u2", now=NOW), position=9)
    assert stored(again)["metadata"]["uid"] == "u2"


def test_an_update_with_another_version_or_uid_changes_nothing() -> None:
    state = created()
    with pytest.raises(ConflictError, match="is at version 7, not 6"):
        update_object(state, CLAIM, claim(resourceVersion="6"))
    with pytest.raises(ConflictError, match="recreated"):
        update_object(state, CLAIM, claim(uid="u0"))
    assert update_object(state, CLAIM, claim(resourceVersion="7", uid="u1", labels={"a": "b"}, finalizers=["x/y"]))


def test_a_main_update_leaves_the_status_and_a_status_update_the_rest() -> None:
    state = created()
    raw = claim(labels={"a": "b"}, finalizers=["kubernetes.io/pvc-protection"]) | {"status": {"phase": "Bound"}}
    main = stored(after(state, update_object(state, CLAIM, raw), position=8))
    assert (main["metadata"]["labels"], main["status"]) == ({"a": "b"}, {"phase": "Pending"})
    assert main["metadata"]["uid"] == "u1"
    status = stored(after(state, update_object(state, CLAIM, raw, status=True), position=8))
    assert "labels" not in status["metadata"]
    assert status["status"] == {"phase": "Bound"}


def test_an_update_that_changes_nothing_is_no_event() -> None:
    state = created()
    assert update_object(state, CLAIM, stored(state)) is None
    assert update_object(state, CLAIM, stored(state), status=True) is None


def test_an_immutable_field_is_refused_with_its_name() -> None:
    state = created()
    raw = claim()
    raw["spec"]["accessModes"] = ["ReadOnlyMany"]
    with pytest.raises(InvalidError, match=r"spec: Forbidden: spec is immutable(.|\n)*AccessModes") as caught:
        update_object(state, CLAIM, raw)
    assert caught.value.code == 422


def test_an_invalid_object_is_refused_before_anything_else() -> None:
    raw = claim()
    raw["spec"]["accessModes"] = []
    with pytest.raises(InvalidError, match="accessModes"):
        create_object(None, CLAIM, raw, uid="u1", now=NOW)


def test_finalizers_hold_a_deleted_object_until_the_last_is_gone() -> None:
    state = created()
    marked = after(state, delete_object(state, CLAIM, "db/data", now=NOW), position=8)
    assert stored(marked)["metadata"]["deletionTimestamp"] == NOW
    assert delete_object(marked, CLAIM, "db/data", now="2026-11-17T00:00:00Z") is None
    with pytest.raises(InvalidError, match="finalizers"):
        update_object(marked, CLAIM, claim(finalizers=["kubernetes.io/pvc-protection", "x/new"]))
    kept = update_object(marked, CLAIM, claim(finalizers=["kubernetes.io/pvc-protection"], labels={"a": "b"}))
    assert kept is not None
    assert kept.type == "ClaimChanged"
    last = update_object(marked, CLAIM, claim())
    assert last is not None
    assert last.type == "ClaimDeleted"
    assert after(marked, last, position=9).manifest is None


POD = KINDS["Pod"]


def pod(*, node: str = "n1", phase: str = "Running", **metadata: Any) -> ObjectState:
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 40}
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "db", **metadata},
        "spec": spec,
    }
    state = after(None, create_object(None, POD, raw, uid="u1", now=NOW), position=7)
    placed = {"spec": {"nodeName": node or None}, "status": {"phase": phase}}
    changed = NewEvent(stream="pod/db/p", type="PodChanged", data={"patch": placed})
    return after(state, changed, position=8)


def going(state: ObjectState, *, now: str = NOW, grace: int | None = None) -> tuple[str, int] | str | None:
    """What the pod says of its end after it was deleted, or that it is gone; None: nothing has changed."""
    event = delete_object(state, POD, "db/p", now=now, grace=grace)
    if event is None:
        return None
    if event.type == "PodDeleted":
        return "gone"
    metadata = stored(after(state, event, position=9))["metadata"]
    return metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("state", "grace", "expected"),
    [
        (pod(), None, ("2026-11-16T12:00:40Z", 40)),
        (pod(), 5, ("2026-11-16T12:00:05Z", 5)),
        (pod(), -1, ("2026-11-16T12:00:01Z", 1)),
        (pod(), 0, "gone"),
        (pod(node=""), None, "gone"),
        (pod(phase="Succeeded"), None, "gone"),
        (pod(phase="Failed"), 5, "gone"),
        (pod(finalizers=["a/b"]), 0, (NOW, 0)),
        (pod(node="", finalizers=["a/b"]), None, (NOW, 0)),
    ],
    ids=["its own", "asked", "negative", "none", "no node", "succeeded", "failed", "held", "held, no node"],
)
def test_a_pod_that_has_a_node_is_given_its_time(
    state: ObjectState, grace: int | None, expected: tuple[str, int] | str
) -> None:
    assert going(state, grace=grace) == expected


@pytest.mark.parametrize(
    ("now", "grace", "expected"),
    [
        (NOW, None, None),
        (NOW, 40, None),
        (NOW, 50, None),
        ("2026-11-16T12:00:02Z", 10, ("2026-11-16T12:00:10Z", 10)),
        ("2026-11-16T12:00:30Z", 10, ("2026-11-16T12:00:30Z", 1)),
        ("2026-11-16T12:00:30Z", 0, "gone"),
    ],
)
def test_the_time_of_a_pod_that_is_going_can_only_be_shortened(
    now: str, grace: int | None, expected: tuple[str, int] | str | None
) -> None:
    state = pod()
    marked = after(state, delete_object(state, POD, "db/p", now=NOW, grace=None), position=9)
    assert going(marked, now=now, grace=grace) == expected


def test_a_pod_that_is_going_can_still_be_written_and_keeps_its_time() -> None:
    state = pod()
    marked = after(state, delete_object(state, POD, "db/p", now=NOW, grace=None), position=9)
    manifest = stored(marked)
    labelled = {**manifest, "metadata": {**manifest["metadata"], "labels": {"a": "b"}}}
    del labelled["metadata"]["deletionGracePeriodSeconds"]
    event = update_object(marked, POD, labelled)
    assert event is not None
    assert (event.type, event.data["patch"]) == ("PodChanged", {"metadata": {"labels": {"a": "b"}}})


def test_a_pod_with_gates_is_born_saying_so() -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "a/b"}]}
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "db"}, "spec": spec}
    state = after(None, create_object(None, POD, raw, uid="u1", now=NOW), position=7)
    (condition,) = stored(state)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")


def test_without_finalizers_an_object_goes_at_once_and_only_the_one_that_was_meant() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    state = after(None, create_object(None, NODE, node, uid="u1", now=NOW), position=1)
    with pytest.raises(ConflictError):
        delete_object(state, NODE, "n1", now=NOW, uid="u0")
    with pytest.raises(ConflictError):
        delete_object(state, NODE, "n1", now=NOW, rv="9")
    event = delete_object(state, NODE, "n1", now=NOW, uid="u1", rv="1")
    assert event is not None
    assert event.type == "NodeDeleted"


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFoundError, match='Node "n1" not found'):
        delete_object(None, NODE, "n1", now=NOW)
    with pytest.raises(NotFoundError):
        update_object(None, CLAIM, claim())
