"""Health, metrics, tables and the descriptions of the API, as their readers get them."""

import re

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.serving import Served
from tests.support.store_samples import create_volume, must
from volsched.api.kubernetes import openapi_message
from volsched.log.leases import acquire
from volsched.runtime.clock import SECOND, system_clock

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def test_a_server_says_that_it_is_well(shared: Served) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert shared.http.get(path).text == "ok"
    verbose = shared.http.get("/readyz?verbose").text
    assert "[+]store ok" in verbose
    assert verbose.endswith("readyz check passed\n")


def test_a_store_that_is_gone_makes_us_unready_but_not_dead(api: Served) -> None:
    with api.database.migrating() as connection:
        connection.exec_driver_sql("ALTER TABLE log_head RENAME TO away")
    try:
        ready = api.http.get("/readyz")
        assert ready.status_code == 503
        assert "[-]store failed:" in ready.text
        assert api.http.get("/livez").text == "ok"
        failed = api.http.get("/api/v1/nodes")
        assert (failed.status_code, failed.json()["reason"]) == (500, "InternalError")
        assert api.http.post("/api/v1/nodes", json=node("n1")).status_code == 500
    finally:
        with api.database.migrating() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO log_head")
    assert api.http.get("/readyz").text == "ok"
    api.create(node("n1"))


def test_a_controller_that_nobody_replaced_makes_us_unready(api: Served) -> None:
    now = system_clock()
    lease = acquire(api.database, name="controller", holder="gone", now=now - 120 * SECOND, ttl=15 * SECOND)
    assert lease is not None
    ready = api.http.get("/readyz")
    assert ready.status_code == 503
    assert "[-]controller failed: no controller holds the lease: it has run out" in ready.text
    values = metrics(api)
    assert values['volsched_lease_held{lease="controller"}'] == "0.0"
    assert float(values['volsched_lease_renewal_age_seconds{lease="controller"}']) >= 120
    assert acquire(api.database, name="controller", holder="next", now=now, ttl=60 * SECOND) is not None
    assert api.http.get("/readyz").text == "ok"
    assert metrics(api)['volsched_lease_held{lease="controller"}'] == "1.0"


def test_a_log_that_is_ahead_of_our_clock_makes_us_unready_until_the_next_write(api: Served) -> None:
    must(api.database, create_volume("ahead"), now=system_clock() + 7_200 * SECOND)
    ready = api.http.get("/readyz")
    assert ready.status_code == 503
    assert "s ahead of this machine's clock" in ready.text
    assert float(metrics(api)["volsched_log_ahead_seconds"]) > 7_000
    api.create(node("n1"))
    assert api.http.get("/readyz").text == "ok"
    assert metrics(api)["volsched_log_ahead_seconds"] == "0.0"


def test_leases_are_listed_and_freed_over_http(api: Served) -> None:
    base = "/apis/volsched.io/v1/leases"
    assert acquire(api.database, name="controller", holder="a", now=system_clock(), ttl=60 * SECOND) is not None
    (row,) = api.http.get(base).json()["items"]
    assert (row["name"], row["holder"], row["held"]) == ("controller", "a", True)
    freed = api.http.post(f"{base}/controller/free", json={"reason": "stuck"})
    assert freed.json()["message"] == "controller is free; a held it in epoch 1"
    assert api.http.get(base).json()["items"] == []
    assert api.http.post(f"{base}/controller/free", json={}).status_code == 409


def metrics(served: Served) -> dict[str, str]:
    return dict(re.findall(r"^(volsched_[^ ]+) (.+)$", served.http.get("/metrics").text, re.MULTILINE))


def test_metrics_tell_how_the_store_stands(up: Served) -> None:
    up.create(node("n1"), LOCAL, volume("v", "1Gi", "n1"), claim("c", "1Gi"), pod("p", "c"), pod("q", "missing"))
    with up.http.stream("GET", "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dp") as answer:
        next(line for line in answer.iter_lines() if '"nodeName":"n1"' in line)
    up.http.get("/api/v1/nodes/nope")
    text = up.http.get("/metrics").text
    values = dict(re.findall(r"^(volsched_[^ ]+) (.+)$", text, re.MULTILINE))
    assert float(values["volsched_log_position"]) > 6
    assert float(values['volsched_attempts{outcome="planned"}']) == 1
    assert values['volsched_http_requests_total{code="404",resource="nodes",verb="get"}'] == "1.0"
    assert values['volsched_http_requests_total{code="201",resource="pods",verb="create"}'] == "2.0"
    assert values["volsched_effects_parked"] == "0.0"
    assert "volsched_lease_held{" in text


def test_tables_have_the_columns_of_get(shared: Served) -> None:
    table = shared.http.get("/api/v1/persistentvolumes", headers=TABLE).json()
    shown = [it["name"] for it in table["columnDefinitions"] if it["priority"] == 0]
    assert table["kind"] == "Table"
    assert shown == [
        "Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "Storageclass",
        "Volumeattributesclass", "Reason", "Age",
    ]  # fmt: skip
    assert {"Binding", "Assumed Claim", "Node"} <= {it["name"] for it in table["columnDefinitions"]}


def test_a_row_carries_as_much_of_its_object_as_is_asked_for(api: Served) -> None:
    api.create(node("n1"))
    kinds = []
    for include in ("None", "Metadata", "Object"):
        (row,) = api.http.get(f"/api/v1/nodes?includeObject={include}", headers=TABLE).json()["rows"]
        kinds.append(row.get("object", {}).get("kind"))
    assert kinds == [None, "PartialObjectMetadata", "Node"]
    one = api.http.get("/api/v1/nodes/n1", headers=TABLE).json()
    assert one["rows"][0]["cells"][0] == "n1"
    partial = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    listed = api.http.get("/api/v1/nodes", headers=partial).json()
    assert (listed["kind"], listed["items"][0]["kind"]) == ("PartialObjectMetadataList", "PartialObjectMetadata")


def test_the_api_describes_itself(shared: Served) -> None:
    assert shared.http.get("/version").json()["major"] == "1"
    groups = [it["name"] for it in shared.http.get("/apis").json()["groups"]]
    assert groups == [
        "apps", "storage.k8s.io", "policy", "scheduling.k8s.io", "events.k8s.io", "coordination.k8s.io",
        "resource.k8s.io", "volsched.io",
    ]  # fmt: skip
    for place in shared.http.get("/openapi/v3").json()["paths"].values():
        assert shared.http.get(place["serverRelativeURL"]).json()["openapi"].startswith("3.0.")
    assert shared.http.get("/openapi/v3/apis/nowhere/v1").status_code == 404
    assert "V1Pod" in shared.http.get("/openapi/v2").json()["definitions"]
    message = shared.http.get("/openapi/v2", headers={"accept": openapi_message.MEDIA_TYPE})
    assert message.headers["content-type"] == openapi_message.ANSWER_TYPE
    assert message.content.startswith(b"\x0a\x032.0")
