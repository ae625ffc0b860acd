"""kubectl on our own resources. Skipped, visibly, where it is not installed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served

KUBECTL = shutil.which("kubectl")
RESERVATION = {
    "apiVersion": "volsched.io/v1",
    "kind": "Reservation",
    "metadata": {"generateName": "web-", "namespace": "default"},
    "spec": {"pod": "web", "ttlSeconds": 60},
}


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_gets_creates_patches_and_deletes_what_is_ours(own: Served, tmp_path: Path) -> None:
    def kubectl(*args: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(KUBECTL), "-s", own.url, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert kubectl("get", "bindings.volsched.io").splitlines()[1].split()[1:5] == ["db", "n0", "committed", "2"]
    assert "unschedulable" in kubectl("get", "attempts", "-A", "-o", "wide")
    assert kubectl("get", "effects", "-o", "name") == ""
    kubectl("create", "-f", "-", stdin=json.dumps(RESERVATION))
    (name,) = kubectl("get", "rsv", "-o", "name").split()
    assert "free→n1-large:assumed" in kubectl("get", name, "-o", "wide")
    assert "patched" in kubectl("patch", name, "--type=merge", "-p", '{"spec":{"ttlSeconds":600}}')
    assert "deleted" in kubectl("delete", name)
    assert kubectl("get", "reservations", "-o", "name") == ""
