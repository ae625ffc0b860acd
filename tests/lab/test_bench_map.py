"""`volsched bench map`: what the console's map costs, next to reading its volumes."""

import json

from typer.testing import CliRunner

from volsched.cli.app import app


def test_the_map_is_measured_next_to_reading_its_volumes() -> None:
    ran = CliRunner().invoke(app, ["bench", "map", "--nodes", "10", "--volumes", "30", "-o", "json"])
    assert ran.exit_code == 0, ran.output
    rows = {it["case"]: it for it in json.loads(ran.stdout)}
    assert rows["read and parse the volumes"]["ratio"] == 1.0
    assert rows["map of one rack"]["kilobytes"] <= rows["map, counted by rack"]["kilobytes"]
    assert set(rows) >= {"map as of the middle", "timeline"}
