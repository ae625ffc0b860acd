"""Acts on bindings and volumes over HTTP: with a reason, only where they may be done, and kept in the log."""

from tests.support.clusters import LOCAL, Stepped, claim, node, pod, volume
from tests.support.serving import served
from volsched.log.database import Database

OURS = "/apis/volsched.io/v1"
WHY = {"reason": "wrong node, ticket 4711"}


def test_a_binding_is_cancelled_with_a_reason_and_undone(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("n1"), volume("disk", "4Gi", "n1")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.plan_and_write()
    (binding,) = stepped.bindings()
    address = f"{OURS}/bindings/{binding.id}/cancel"
    with served(database) as running:
        for empty in ({}, {"reason": " "}):
            assert running.http.post(address, json=empty).status_code == 422
        done = running.http.post(address, json=WHY)
        assert done.status_code == 200, done.text
        again = running.http.post(address, json=WHY)
        assert (again.status_code, "is not cancelled" in again.text) == (409, True)
        assert running.http.post(f"{OURS}/bindings/none/cancel", json=WHY).status_code == 404
    stepped.until(lambda: not next(it for it in stepped.bindings() if it.id == binding.id).open)
    ended = next(it for it in stepped.bindings() if it.id == binding.id)
    assert (ended.state, ended.reason) == ("rolled-back", f"cancelled by an operator: {WHY['reason']}")


def test_a_released_volume_is_given_back_with_a_reason_and_a_bound_one_is_not(database: Database) -> None:
    stepped = Stepped(database, [LOCAL, node("n1"), volume("disk", "4Gi", "n1")])
    stepped.settle()
    stepped.create(claim("data", "4Gi"), pod("db", "data"))
    stepped.settle()
    address = f"{OURS}/volumes/disk/release"
    with served(database) as running:
        refused = running.http.post(address, json=WHY)
        assert (refused.status_code, "disk" in refused.json()["message"]) == (409, True)
        assert running.http.post(f"{OURS}/volumes/none/release", json=WHY).status_code == 404
        stepped.cluster.delete("Pod", "default/db")
        stepped.cluster.delete("PersistentVolumeClaim", "default/data")
        stepped.settle()
        released = running.http.post(address, json=WHY)
        assert released.status_code == 200, released.text
        found = running.http.get("/api/v1/persistentvolumes/disk").json()
        assert (found["status"]["phase"], found["spec"].get("claimRef")) == ("Available", None)
