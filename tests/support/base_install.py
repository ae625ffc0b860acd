"""An install from the built wheel with the packages of `locks/base.lock` and nothing else, without any network.

The wheel is installed by pip, as a person would. The locked packages come from the environment of the tests, file
by file as their RECORDs list them (hard links, so that it takes no time): an import that the base does not have
fails here as it fails for somebody who ran `pip install volsched`.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from hatch_build import read_lock

ROOT = Path(__file__).parents[2]


def built_wheel(directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel


def base_install(directory: Path) -> Path:
    """The directory of commands of a new virtual environment."""
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(
        subprocess.run([python, "-c", query], capture_output=True, text=True, check=True).stdout.strip()
    )
    for pin in read_lock(ROOT / "locks" / "base.lock"):
        _link(pin.name, packages, required=pin.marker is None)
    install = ["--python", str(python), "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *install, str(built_wheel(directory))],
        capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return venv / "bin"


def _link(name: str, packages: Path, *, required: bool) -> None:
    try:
        files = distribution(name).files
    except PackageNotFoundError:
        assert not required, f"{name} is in locks/base.lock and not in this environment; run: make setup"
        return
    own = Path(sysconfig.get_path("purelib")).resolve()
    for file in files or ():
        source = Path(str(file.locate())).resolve()
        # Commands stand beside the packages, not among them: of the base, only ours is called.
        if source.is_relative_to(own) and source.is_file():
            target = packages / source.relative_to(own)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
