"""Every example does what it says: applied to a store and scheduled, it ends as its `.expected` file has it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from volsched.cli.app import app

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EXPLAINED_ONLY = {"three-zones"}
"""Its volumes are made by a driver that does not exist: it is there to be explained."""
NEW = "new"
"""In an expectation: a volume that was made for the claim."""


def volsched(*words: str) -> str:
    ran = CliRunner().invoke(app, list(words), env={"NO_COLOR": "1"})
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def names(suffix: str) -> set[str]:
    return {it.stem for it in EXAMPLES.glob(f"*{suffix}")}


def test_every_example_says_what_is_expected_of_it() -> None:
    assert names(".yaml") - EXPLAINED_ONLY == names(".expected")
    assert all(it.read_text().startswith("# ") for it in EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("name", sorted(names(".expected")))
def test_an_example_ends_as_expected(name: str, tmp_path: Path) -> None:
    expected: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.expected").read_text())
    db = str(tmp_path / "store.db")
    volsched("migrate", "--db", db)
    volsched("apply", "-f", str(EXAMPLES / f"{name}.yaml"), "--db", db)
    told = json.loads(volsched("schedule", "--db", db, "-o", "json"))
    pods = {entry["pod"]: entry for entry in told["pods"]}
    if "pods" in expected:
        assert pods.keys() == expected["pods"].keys()
        for key, wanted in expected["pods"].items():
            check(pods[key], wanted)
    if "pods_on" in expected:
        assert Counter(it["node"] for it in pods.values() if it["node"]) == expected["pods_on"]
    if "waiting" in expected:
        waiting = [it["state"] for it in pods.values() if not it["node"]]
        assert len(waiting) == expected["waiting"]["pods"]
        assert all(expected["waiting"]["because"] in state for state in waiting)
    if "bindings" in expected:
        assert told["bindings"] == expected["bindings"]


def check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found["node"] == wanted.get("node")
    if "waits" in wanted:
        assert found["state"].startswith("pending: ")
        assert wanted["waits"] in found["state"]
    for claim, volume in wanted.get("claims", {}).items():
        assert (NEW if found["claims"][claim].startswith("pvc-") else found["claims"][claim]) == volume
