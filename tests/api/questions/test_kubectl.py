"""kubectl on our own resources. Skipped, visibly, where it is not installed."""

import json
from functools import partial
from pathlib import Path

from tests.support.kubectl import kubectl_at, needs_kubectl
from tests.support.serving import Served

RESERVATION = {
    "apiVersion": "volsched.io/v1",
    "kind": "Reservation",
    "metadata": {"generateName": "web-", "namespace": "default"},
    "spec": {"pod": "web", "ttlSeconds": 60},
}


@needs_kubectl
def test_kubectl_gets_creates_patches_and_deletes_what_is_ours(own: Served, tmp_path: Path) -> None:
    kubectl = partial(kubectl_at, own.url, tmp_path)
    assert kubectl("get", "bindings.volsched.io").splitlines()[1].split()[1:5] == ["db", "n0", "committed", "2"]
    assert "unschedulable" in kubectl("get", "attempts", "-A", "-o", "wide")
    assert kubectl("get", "effects", "-o", "name") == ""
    kubectl("create", "-f", "-", stdin=json.dumps(RESERVATION))
    (name,) = kubectl("get", "rsv", "-o", "name").split()
    assert "free→n1-large:assumed" in kubectl("get", name, "-o", "wide")
    assert "patched" in kubectl("patch", name, "--type=merge", "-p", '{"spec":{"ttlSeconds":600}}')
    assert "deleted" in kubectl("delete", name)
    assert kubectl("get", "reservations", "-o", "name") == ""
