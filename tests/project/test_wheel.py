"""The wheel carries the migrations, and a bill of materials as PEP 770 wants it, which says what the locks say."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_build import read_lock
from tests.support.base_install import built_wheel

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bill(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (it for it in opened.namelist() if "/sboms/" in it)
        assert name.endswith(".dist-info/sboms/volsched.cdx.json")
        assert name in opened.read(name.partition("/")[0] + "/RECORD").decode()
        read: dict[str, Any] = json.loads(opened.read(name))
    return read


def test_it_names_every_pin_of_the_lock_with_its_hashes(bill: dict[str, Any]) -> None:
    pins = read_lock(ROOT / "locks" / "image.lock")
    assert [it["purl"] for it in bill["components"]] == [it.purl for it in pins]
    for component, pin in zip(bill["components"], pins, strict=True):
        (files,) = component["externalReferences"]
        assert [it["content"] for it in files["hashes"]] == list(pin.hashes)


def test_what_only_extras_need_is_optional(bill: dict[str, Any]) -> None:
    scopes = {it["name"]: it["scope"] for it in bill["components"]}
    assert scopes["sqlalchemy"] == scopes["typer"] == scopes["mako"] == "required"
    assert scopes["celery"] == scopes["uvicorn"] == scopes["amqp"] == "optional"
    assert "pytest" not in scopes


def test_it_says_who_needs_what(bill: dict[str, Any]) -> None:
    needs = {
        it["ref"].split("@")[0]: {other.split("@")[0] for other in it["dependsOn"]} for it in bill["dependencies"]
    }
    assert "pkg:pypi/kombu" in needs["pkg:pypi/celery"]
    assert "pkg:pypi/sqlalchemy" in needs["pkg:pypi/volsched"]
    known = {it["bom-ref"] for it in bill["components"]}
    reached = {it for entry in bill["dependencies"] for it in entry["dependsOn"]}
    assert reached == known, "something is needed by nobody, or needed and not listed"


def test_it_names_no_address_and_no_time_and_the_wheel_is_the_same_every_time(
    bill: dict[str, Any], wheel: Path, tmp_path: Path
) -> None:
    schema = bill["$schema"]
    assert "://" not in json.dumps(bill).replace(schema, "")
    assert "timestamp" not in bill["metadata"]
    assert built_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_carries_the_migrations(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {
        f"volsched/migrations/versions/{script.name}" for script in (ROOT / "alembic/versions").glob("*.py")
    }
    assert scripts
    assert scripts | {"volsched/migrations/env.py"} <= names
