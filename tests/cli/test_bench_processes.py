"""`volsched bench bind` with other processes: several on one SQLite file, and a cluster over HTTP."""

import json
import subprocess
import sys

import pytest

from tests.support.extent import FULL, extended


def test_processes_on_one_file_are_measured_beside_one_alone() -> None:
    sizes = ("--pods", "4", "--singles", "1", "--volumes", "40", "--nodes", "2")
    command = [sys.executable, "-m", "volsched", "bench", "bind", "--processes", "2", *sizes, "-o", "json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [(row["claims"], row["processes"], row["workers"]) for row in rows] == [
        (1, 1, "embedded"),
        (1, 2, "2 processes"),
        (3, 1, "embedded"),
        (3, 2, "2 processes"),
    ]
    for row in rows:
        assert row["pods_per_second"] > 0
        assert row["longest_wait_ms"] > 0


@pytest.mark.skipif(not FULL, reason="two clusters are started and filled over HTTP; make drills runs it")
@extended
def test_own_mode_is_measured_on_a_strict_server_with_as_many_calls_as_it_needs() -> None:
    sizes = ("--pods", "4", "--singles", "2", "--volumes", "66", "--nodes", "2")
    command = [sys.executable, "-m", "volsched", "bench", "bind", "--cluster", "strict", *sizes, "-o", "json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [(row["claims"], row["calls_per_pod"]) for row in rows] == [(1, 3), (3, 5)]
