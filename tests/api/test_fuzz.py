"""Objects of every kind with something wrong somewhere: whatever is sent, nothing fails but the request itself."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.support.manifest_samples import sample
from tests.support.serving import Served
from volsched.api.kubernetes.resources import RESOURCES, Resource
from volsched.kube.kinds import KINDS

ROUNDS = 12
WEIRD: list[Any] = [
    None, "", 0, -1, 1.5, True, [], {}, [None], {"a": None}, "x" * 300, "\u0001", "é", "9Ti", "1e400", [[]], [{}],
    {"": ""}, 2**62, "a/b", "../x", "%00", " ", [1, "a"], {"name": 7}, {"uid": "x"},
]  # fmt: skip
PATCHES = ("merge-patch", "strategic-merge-patch", "json-patch")
OPERATIONS = ("add", "remove", "replace", "test", "copy", "move")
QUESTIONS = ("limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch")
ACCEPT = ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io")
EXPECTED = {200, 201, 400, 404, 405, 406, 409, 410, 422, 504}
Path = tuple[str | int, ...]


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from places(inner, (*at, step))


def spoilt(rng: random.Random, manifest: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(manifest)
    path = rng.choice(list(places(result))[1:])
    holder: Any = result
    for step in path[:-1]:
        holder = holder[step]
    if rng.random() < 0.15:
        holder.pop(path[-1])
    else:
        holder[path[-1]] = copy.deepcopy(rng.choice(WEIRD))
    return result


def whole(resource: Resource) -> dict[str, Any]:
    """With the parts that every object has, and that few rules look at."""
    kind = resource.kind
    bare = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "x"}, "spec": {}}
    made = sample(kind.name, name="x") if kind.name in KINDS else bare
    made["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"]}
    return made | {"status": {"phase": "x", "conditions": [{"type": "a", "status": "True"}]}}


def collection(resource: Resource) -> str:
    group = f"apis/{resource.group}" if resource.group else "api"
    return f"/{group}/v1{'/namespaces/default' if resource.namespaced else ''}/{resource.plural}"


def test_no_request_makes_the_server_fail(up: Served) -> None:
    """The whole system runs along: what was accepted must not hurt it either. Its end would fail the fixture."""
    rng = random.Random(1)

    def send(method: str, path: str, **request: Any) -> None:
        answer = up.http.request(method, path, **request)
        assert answer.status_code in EXPECTED, (method, path, request, answer.text)

    for resource in RESOURCES:
        base = collection(resource)
        for number in range(ROUNDS):
            manifest = whole(resource)
            manifest["metadata"]["namespace"] = "default" if resource.namespaced else None
            for _ in range(rng.choice([0, 1, 2])):
                manifest = spoilt(rng, manifest)
            send("POST", base, json=manifest)
            one = f"{base}/x{'/status' if 'status' in resource.subresources and number % 2 else ''}"
            send("PUT", one, json=manifest)
            kind = rng.choice(PATCHES)
            pointer = "/" + "/".join(map(str, rng.choice(list(places(manifest)))))
            operation = {
                "op": rng.choice(OPERATIONS),
                "path": pointer,
                "from": "/spec",
                "value": rng.choice(WEIRD),
            }
            patch = [operation] if kind == "json-patch" else manifest
            send("PATCH", one, content=json.dumps(patch), headers={"content-type": f"application/{kind}+json"})
            asked = {rng.choice(QUESTIONS): str(rng.choice([*WEIRD, "Exact", "1", "a=b", "metadata.name=x"]))}
            send("GET", base, params=asked, headers={"accept": rng.choice(ACCEPT)})
        send("DELETE", f"{base}/x", json={"preconditions": rng.choice(WEIRD), "dryRun": rng.choice(WEIRD)})
        assert up.http.get(base, headers={"accept": ACCEPT[1]}).status_code == 200
