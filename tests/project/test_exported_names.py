"""The names that library users import. One that goes, or changes, breaks programs that we do not see."""

import subprocess
import sys

import pytest

import volsched
import volsched.core
import volsched.model
from volsched.core import exports

CORE = [
    "PARITY", "VOLSCHED", "Attempt", "AttemptError", "Code", "NodeAnswer", "PodClaims", "Profile",
    "Reservation", "Search", "Snapshot", "Status", "Verdict", "assume_pod_volumes", "attempt", "bind_volume",
    "classify_claims", "find_for_controller", "find_matching_volume", "find_pod_volumes", "is_bound_to",
    "node_score", "prefilter", "revert_assumed_pod_volumes", "snapshot_of",
]  # fmt: skip
MODEL = ["Loaded", "ManifestError", "Quantity", "dump_manifests", "load_manifests", "parse_quantity"]


def test_the_names_are_these() -> None:
    assert volsched.__all__ == ["Engine"]
    assert exports.__all__ == CORE
    assert volsched.model.__all__ == MODEL


@pytest.mark.parametrize("name", CORE)
def test_every_name_of_core_is_there(name: str) -> None:
    assert getattr(volsched.core, name) is getattr(exports, name)


def test_the_engine_is_there_and_other_names_are_not() -> None:
    assert volsched.Engine.__name__ == "Engine"
    for module in (volsched, volsched.core):
        with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
            getattr(module, "nobody")  # noqa: B009 (the module's own __getattr__)


def test_the_rules_load_no_database() -> None:
    code = "import sys, volsched.model; from volsched.core import attempt; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "volsched.scheduling.rules.cycle" in loaded
    assert not {"sqlalchemy", "alembic", "celery", "typer", "starlette"} & set(loaded)
