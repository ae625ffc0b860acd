"""Reservations over HTTP, as an autoscaler or another scheduler would use them."""

from typing import Any

import httpx
import pytest

from tests.api.questions.conftest import furnished
from tests.support.serving import Served, served
from volsched.log.database import Database

HELD = "/apis/volsched.io/v1/namespaces/default/reservations"


def wanted(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "volsched.io/v1", "kind": "Reservation", "spec": {"pod": "web", **spec}}


def test_reserve_renew_and_cancel(own: Served) -> None:
    made = own.http.post(HELD, json=wanted(ttlSeconds=30)).json()
    name, status = made["metadata"]["name"], made["status"]
    assert (status["phase"], status["node"]) == ("Reserved", "n1")
    assert [(it["claim"], it["volume"]) for it in status["claims"]] == [("default/free", "n1-large")]
    assert [it["metadata"]["name"] for it in own.http.get(HELD).json()["items"]] == [name]
    patch = own.http.patch(
        f"{HELD}/{name}", json={"spec": {"ttlSeconds": 900}},
        headers={"content-type": "application/merge-patch+json"},
    )  # fmt: skip
    assert patch.json()["status"]["expiresAt"] > status["expiresAt"]
    again = own.http.post(HELD, json=wanted())
    assert (again.status_code, again.json()["reason"]) == (409, "Conflict")
    gone = own.http.delete(f"{HELD}/{name}", params={"reason": "scaled in"}).json()
    assert gone["status"]["reason"] == "cancelled by api/test: scaled in"
    for answer in (own.http.get(f"{HELD}/{name}"), own.http.delete(f"{HELD}/{name}")):
        assert answer.status_code == 404
    assert own.http.get(HELD).json()["items"] == []
    for act in ("confirm", "renew"):
        late = own.http.post(f"{HELD}/{name}/{act}")
        assert late.status_code == 409
        assert "cancelled by api/test: scaled in" in late.json()["message"]
    binding = own.http.get(f"/apis/volsched.io/v1/namespaces/default/bindings/{name}").json()
    assert binding["status"]["state"] == "rolled-back"
    assert [leg["state"] for leg in binding["status"]["legs"]] == ["voided"]


def test_a_confirmed_reservation_ends_in_a_bound_pod(sqlite: Database) -> None:
    stepped = furnished(sqlite)
    with served(sqlite) as own:
        name = own.http.post(HELD, json=wanted(node="n1")).json()["metadata"]["name"]
        for _ in range(2):
            confirmed = own.http.post(f"{HELD}/{name}/confirm").json()
            assert confirmed["status"]["phase"] == "Confirmed"
        assert own.http.delete(f"{HELD}/{name}").status_code == 409
        assert own.http.post(f"{HELD}/{name}/renew").status_code == 409
        stepped.settle()
        assert own.http.get(f"{HELD}/{name}").json()["status"]["phase"] == "Bound"
        assert own.http.get("/api/v1/namespaces/default/pods/web").json()["spec"]["nodeName"] == "n1"


def test_the_same_key_gets_the_same_answer(own: Served) -> None:
    headers = {"idempotency-key": "scale-7"}
    first, second = (own.http.post(HELD, json=wanted(), headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()


def test_a_refusal_tells_the_reasons_and_keeps_them(own: Served) -> None:
    answer = own.http.post(HELD, json={"spec": {"pod": "web", "node": "n0"}})
    status = answer.json()
    assert (answer.status_code, status["reason"]) == (422, "Unschedulable")
    assert status["details"]["causes"] == [
        {
            "reason": "NoNode",
            "message": "1 node(s): node(s) didn't find available persistent volumes to bind",
            "field": "n0",
        }
    ]
    kept = own.http.get(f"/apis/volsched.io/v1/namespaces/default/attempts/{status['details']['name']}").json()
    assert (kept["status"]["outcome"], kept["status"]["pod"]) == ("unschedulable", "default/web")


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (wanted(pod="none"), 404, 'pod "default/none" not found'),
        (wanted(node="n9"), 404, 'node "n9" not found'),
        (wanted(pod="db"), 409, "is on node"),
        (wanted(podUID="other"), 409, "it is another pod"),
        (wanted(ttlSeconds=0), 422, "spec.ttlSeconds"),
        (wanted(ttlSeconds="60"), 422, "spec.ttlSeconds"),
        (wanted(forever=True), 422, "spec.forever"),
        (wanted() | {"kind": "Pod"}, 400, "not a Reservation"),
        (wanted() | {"metadata": {"name": "mine"}}, 422, "named by the server"),
        (wanted() | {"metadata": {"namespace": "other"}}, 400, "does not match the namespace"),
    ],
)
def test_what_cannot_be_reserved_is_reported(
    own_shared: Served, body: dict[str, Any], code: int, said: str
) -> None:
    answer = own_shared.http.post(HELD, json=body)
    assert answer.status_code == code, answer.text
    assert said in answer.json()["message"]


def test_the_extender_confirms_what_was_reserved_on_the_node_that_is_named(sqlite: Database) -> None:
    furnished(sqlite)
    with served(sqlite, system=True) as own:
        made = own.http.post(HELD, json=wanted(node="n1")).json()
        body = {
            "PodName": "web", "PodNamespace": "default", "PodUID": made["spec"]["podUID"], "Node": "n1",
        }  # fmt: skip
        assert own.http.post("/extender/bind", json=body).json() == {"Error": ""}
        bound = own.http.get(f"{HELD}/{made['metadata']['name']}").json()
        assert bound["status"]["phase"] == "Bound"


def test_one_is_chosen_by_its_name(own: Served) -> None:
    """As kubectl waits for one."""
    name = own.http.post(HELD, json=wanted()).json()["metadata"]["name"]
    assert chosen(own, HELD, name) == [name]
    assert chosen(own, HELD, "another") == []
    # Nobody carries its work out here.
    own.http.post(f"{HELD}/{name}/confirm").raise_for_status()
    work = "/apis/volsched.io/v1/effects"
    (queued,) = (it["metadata"]["name"] for it in own.http.get(work).json()["items"])
    assert chosen(own, work, queued) == [queued]
    assert chosen(own, f"{work}?state=parked", queued) == []
    assert chosen(own, work, "another") == []


def chosen(own: Served, where: str, name: str) -> list[str]:
    answer = own.http.get(httpx.URL(where).copy_add_param("fieldSelector", f"metadata.name={name}"))
    return [it["metadata"]["name"] for it in answer.json()["items"]]
