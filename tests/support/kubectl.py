"""kubectl against a server of ours, where it is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import HANG_SECONDS

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


def kubectl_at(
    url: str, home: Path, *args: str, stdin: str | None = None, fails: bool = False, editor: str = "false"
) -> str:
    """What it prints; its errors too, where the test expects it to fail."""
    done = subprocess.run(
        [str(KUBECTL), "-s", url, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "EDITOR": editor},
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout
