"""What the server sets at a pod's creation stays through updates that do not speak of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from volsched import Engine
from volsched.kube.kinds import KINDS
from volsched.log.events.fold import ObjectState, evolve
from volsched.objects.rules.lifecycle import update_object

POD = KINDS["Pod"]


def pod(image: str = "app") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(str(tmp_path / "store.db"), migrate=True) as opened:
        yield opened


def stored(engine: Engine) -> dict[str, Any]:
    manifest = engine.get("pod", "db")
    assert manifest is not None
    return dict(manifest)


def test_a_pod_is_born_with_a_priority_and_a_quality_of_service(engine: Engine) -> None:
    engine.apply(pod())
    made = stored(engine)
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [it.done for it in engine.apply(pod())] == ["unchanged"]


def test_an_applied_image_may_change_though_its_default_policy_would_be_another(engine: Engine) -> None:
    engine.apply(pod("app"))
    assert [it.done for it in engine.apply(pod("app:2"))] == ["configured"]
    (container,) = stored(engine)["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("app:2", "Always")


def test_an_update_without_the_fields_of_the_server_keeps_them(engine: Engine) -> None:
    engine.apply(pod("app:1"))
    made = stored(engine)
    state = ObjectState(version=1, rv=1, manifest=made)
    again = {**pod("app:1"), "metadata": {**made["metadata"], "labels": {"tier": "db"}, "resourceVersion": "1"}}
    changed = update_object(state, POD, again)
    assert changed is not None
    become = evolve(state, type_=changed.type, version=2, position=2, at=0, data=changed.data)
    assert become.manifest["spec"] == made["spec"]
    told = update_object(state, POD, {**again, "status": {"phase": "Running"}}, status=True)
    assert told is not None
    # A pod's labels and annotations may be written with its status, as on a real server.
    assert told.data["patch"] == {"metadata": {"labels": {"tier": "db"}}, "status": {"phase": "Running"}}


def test_a_pod_that_is_older_than_the_defaults_can_be_changed() -> None:
    old = {**pod("app:1"), "status": {"phase": "Pending"}}
    state = ObjectState(version=1, rv=1, manifest=old)
    changed = update_object(state, POD, {**old, "metadata": {**old["metadata"], "labels": {"tier": "db"}}})
    assert changed is not None
    assert changed.data["patch"]["metadata"] == {"labels": {"tier": "db"}, "generation": 2}
