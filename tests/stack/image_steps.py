"""`make image`: the Dockerfile's own commands in a clean directory, without Docker; too slow for every run.

The RUN lines are taken from the file and only their directories are replaced, so that an install which does not
work is found here. What it cannot show: the base image, its user, and the file system that is read-only.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT_HERE = shutil.ignore_patterns("node_modules", "static")
"""What .dockerignore keeps out: the image builds its own."""


def instructions(file: Path) -> list[tuple[str, str]]:
    """Instruction and argument of every line, of all stages."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    return [(it.partition(" ")[0], it.partition(" ")[2]) for it in lines if it and not it.startswith("#")]


def built(directory: Path) -> Path:
    """The directory of commands that the image would have; raises what fails."""
    source, places = directory / "src", {"/dist": directory / "dist", "/opt/volsched": directory / "opt"}
    source.mkdir()
    # In the place of the base image's Python, into which the build stage installs what builds.
    base = directory / "base"
    subprocess.run([sys.executable, "-m", "venv", base], check=True)
    for word, argument in instructions(ROOT / "Dockerfile"):
        if word == "COPY" and not argument.startswith("--from"):
            *what, _ = argument.split()
            for name in what:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / name, ignore=BUILT_HERE)
                else:
                    (source / name).parent.mkdir(exist_ok=True)
                    shutil.copy(ROOT / name, source / name)
        elif word == "RUN" and re.search("-m (pip|venv|tools.npm) ", argument):
            command = re.sub("|".join(places), lambda found: str(places[found[0]]), argument)
            print("+", command, flush=True)
            path = f"{base / 'bin'}:/usr/bin:/bin"
            subprocess.run(["sh", "-ec", command], cwd=source, check=True, env={**_environment(), "PATH": path})
    return places["/opt/volsched"] / "bin"


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "HOME", "SSL_", "UV_"))}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        commands = built(Path(directory))
        store = f"--db={directory}/store.db"
        for command in (
            ["volsched", "--version"],
            ["volsched", "migrate", store],
            ["volsched", "verify", store],
            ["volsched", "serve", "api", "--help"],
            ["volsched", "stack", "secrets", f"{directory}/secrets"],
            ["celery", "-A", "workers.app", "report"],
        ):
            ran = subprocess.run(
                [commands / command[0], *command[1:]], cwd=directory, capture_output=True, text=True
            )
            print("+", *command, "→", ran.returncode, (ran.stdout or ran.stderr).strip().splitlines()[:1])
            assert ran.returncode == 0, ran.stdout + ran.stderr
        health = subprocess.run([commands / "python", "-m", "volsched.runtime.health_check", "api"], cwd=directory)
        assert health.returncode == 1, "nothing listens, and the health check is content"
        assert not (commands / "pip").exists()
        size = sum(it.stat().st_size for it in Path(directory, "opt").rglob("*") if it.is_file()) // 2**20
        print(f"the image would carry {size} MiB beside its base")


if __name__ == "__main__":
    main()
