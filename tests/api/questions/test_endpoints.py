"""Our own endpoints beside the questions of the registry: what the command line shows is to be had over HTTP."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.serving import Served
from volsched.api.questions.routes import OPERATIONS
from volsched.cli.app import app

BASE = "/apis/volsched.io/v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def told(own: Served, *words: str) -> Any:
    """What the command line prints as JSON."""
    url = str(own.database.engine.url)
    result = CliRunner().invoke(app, [*words, "-o", "json", "--db", url])
    assert result.exit_code in (0, 4), result.output
    return json.loads(result.stdout)


SAME = [
    ("describe/pv/n0-small?asOf=30", ("describe", "pv", "n0-small", "--as-of", "30")),
    ("namespaces/default/describe/pods/db", ("describe", "pod", "db")),
    ("history/pv?asOf=6", ("get", "pv", "--as-of", "6")),
    ("history/pv/n0-small/object?asOf=6", ("get", "pv", "n0-small", "--as-of", "6")),
    ("namespaces/default/history/bindings", ("get", "bindings")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "words"), SAME, ids=lambda it: str(it)[:40])
def test_the_same_question_has_the_same_answer(own_shared: Served, path: str, words: tuple[str, ...]) -> None:
    answer = own_shared.http.get(f"{BASE}/{path}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == told(own_shared, *words)


def test_a_pod_that_is_not_there_yet_is_explained(own_shared: Served) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "app"}]},
    }
    found = own_shared.http.post(f"{BASE}/explain", json={"pod": "new", "manifests": [pod]}).json()
    assert (found["pod"], found["fits"], found["nodes"]) == ("default/new", True, 2)
    alone = own_shared.http.post(f"{BASE}/explain", json={"pod": "new", "manifests": [pod], "alone": True})
    assert alone.status_code == 422
    assert "there is no Node in the manifests" in alone.json()["message"]


def test_lists_are_paged_filtered_and_shown_as_tables(own_shared: Served) -> None:
    http, everything = own_shared.http, f"{BASE}/attempts"
    whole = http.get(everything).json()
    names = [it["metadata"]["name"] for it in whole["items"]]
    assert len(names) >= 2
    paged, more = [], ""
    while True:
        page = http.get(everything, params={"limit": 1, "continue": more}).json()
        paged += [it["metadata"]["name"] for it in page["items"]]
        more = page["metadata"].get("continue", "")
        if not more:
            break
    assert paged == names
    assert [it["status"]["pod"] for it in http.get(everything, params={"pod": "default/big"}).json()["items"]] == [
        "default/big"
    ]
    assert http.get(f"{BASE}/namespaces/elsewhere/attempts").json()["items"] == []
    assert len(http.get(everything, params={"fieldSelector": f"metadata.name={names[0]}"}).json()["items"]) == 1
    table = http.get(f"{BASE}/bindings", headers={"accept": TABLE}).json()
    assert [it["name"] for it in table["columnDefinitions"] if not it["priority"]] == [
        "Name", "Pod", "Node", "State", "Legs", "Age"
    ]  # fmt: skip
    assert table["rows"][0]["cells"][1:5] == ["db", "n0", "committed", "2"]
    steps = http.get(f"{BASE}/namespaces/default/bindings/{table['rows'][0]['cells'][0]}/steps").json()["items"]
    assert steps[0]["type"] == "BindingPlanned"


def test_a_large_answer_is_packed_for_whoever_reads_gzip(own_shared: Served) -> None:
    plain, packed = (
        own_shared.http.get(f"{BASE}/audit/events?limit=500", headers={"accept-encoding": it})
        for it in ("identity", "gzip")
    )
    assert "content-encoding" not in plain.headers
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    # Asking is recorded: the second answer holds one event more.
    assert packed.json()["items"][1:] == plain.json()["items"][: len(packed.json()["items"]) - 1]


def test_an_export_can_be_verified_elsewhere(own_shared: Served, tmp_path: Any) -> None:
    found = own_shared.http.get(f"{BASE}/export").json()
    (tmp_path / "log.jsonl").write_text(found["text"])
    result = CliRunner().invoke(app, ["import-log", "--check", str(tmp_path / "log.jsonl")])
    assert result.exit_code == 0, result.output


BAD = [
    ("GET", "nothing", 404, "could not find the requested resource"),
    ("GET", "bindings/x%2fy", 404, "could not find the requested resource"),
    ("GET", "namespaces/default/bindings/none", 404, 'bindings.volsched.io "none" not found'),
    ("POST", "bindings", 405, "does not allow this method"),
    ("GET", "bindings?limit=many", 400, "limit: Invalid value"),
    ("GET", "bindings?limit=0", 400, "must be from 1 to 1000"),
    ("GET", "bindings?continue=here", 400, "no page ended there"),
    ("GET", "bindings?state=lost", 400, "Unsupported value"),
    ("GET", "bindings?watch=true", 405, "cannot be watched"),
    ("GET", "bindings?labelSelector=a%3Db", 400, "have no labels"),
    ("GET", "bindings?fieldSelector=spec.x%3D1", 400, "field label not supported"),
    ("GET", "history/nonsense/x", 404, 'there is no kind "nonsense"'),
    ("GET", "history/pods/db", 404, "are in a namespace"),
    ("GET", "history/pv/n0-small?since=yesterday", 400, "neither a position nor a time"),
    ("GET", "history/pv/n0-small?until=5&asOf=5", 400, "until and asOf mean the same"),
    ("GET", "history/pv/n0-small?until=99999999", 404, "does not exist yet"),
    ("GET", "diff", 400, "from: Required value"),
    ("GET", "audit/cause/first", 404, "there is no binding"),
    ("GET", "audit/in-flight?olderThan=long", 400, "is not a duration"),
    ("GET", "namespaces/default/explain/none", 404, 'pod "default/none" is not in the store'),
    ("POST", "simulate", 422, "nothing to try"),
    ("POST", "effects/none/retry", 404, 'effects.volsched.io "none" not found'),
    ("POST", "namespaces/default/reservations", 422, "spec: Field required"),
    ("POST", "namespaces/default/reservations/none/confirm", 404, 'reservations.volsched.io "none" not found'),
]


@pytest.mark.parametrize(("method", "path", "code", "said"), BAD)
def test_bad_requests_are_refused_with_a_status(
    own_shared: Served, method: str, path: str, code: int, said: str
) -> None:
    answer = own_shared.http.request(method, f"{BASE}/{path}", json={} if method == "POST" else None)
    status = answer.json()
    assert (answer.status_code, status["kind"], status["code"]) == (code, "Status", code), answer.text
    assert said in status["message"]


def test_every_operation_is_of_a_resource_that_access_knows() -> None:
    from volsched.api.access.authorization import row_of

    unknown = {it.resource for it in OPERATIONS if row_of("volsched.io", it.resource, None) is None}
    assert unknown == set()
