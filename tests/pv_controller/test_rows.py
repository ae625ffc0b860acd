"""No row of the tables is without a test."""

import importlib
from pathlib import Path

from tests.pv_controller.rows import ROWS


def covered_rows() -> set[str]:
    modules = [
        importlib.import_module(f"tests.pv_controller.{path.stem}")
        for path in Path(__file__).parent.glob("test_*.py")
        if path.stem != "test_rows"
    ]
    tests = [value for module in modules for name, value in vars(module).items() if name.startswith("test_")]
    return {name for test in tests for name in getattr(test, "rows", ())}


def test_every_row_is_covered() -> None:
    assert set(ROWS) - covered_rows() == set()
