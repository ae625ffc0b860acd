"""`volsched bench bind --processes`: what several processes make of one SQLite file, beside one alone."""

import json
import subprocess
import sys


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
