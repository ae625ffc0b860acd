"""A real browser: Chromium and its driver, from the packages that build and test the console."""

import fcntl
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.support.patience import HANG_SECONDS
from tools.npm import WEB, node

UNPACK = """
import { createRequire } from "node:module";
const require = createRequire(`${process.argv[1]}/package.json`);
const { default: packed } = await import(require.resolve("@sparticuz/chromium"));
await packed.executablePath();
"""


def play(script: Path, **given: Any) -> subprocess.CompletedProcess[str]:
    """Run a script that drives the browser; it is given these words, and where the packages are."""
    _unpack()
    return _run([str(script), json.dumps({"web": str(WEB), **given})])


def _unpack() -> None:
    """One at a time: all share the place, and a second one would take half a file for the browser."""
    with Path(tempfile.gettempdir(), f"volsched-chromium-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpacked = _run(["--input-type=module", "-e", UNPACK, str(WEB)])
    assert unpacked.returncode == 0, unpacked.stderr


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node(), *words], capture_output=True, text=True, timeout=HANG_SECONDS)
