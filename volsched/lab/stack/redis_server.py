"""Which Redis a stack runs on: one that is installed, else the distribution's package, else an imitation.

A wheel of Redis would be as easy as PostgreSQL's, but none is kept up: docs/decisions/0008. The imitation is for a
look at the program where there is nothing else. What it shows proves nothing about the stack, so whoever measures,
drills or tests asks for a real one.
"""

import fcntl
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from shlex import quote

from volsched.lab.stack.debian_package import COMPLETE, PackageError, unpack
from volsched.lab.stack.postgres_wheel import INSTALL, WheelMissingError
from volsched.runtime.settings import cache_directory

SERVER, CLIENT = "redis-server", "redis-cli"
"""What a stack's commands are called, whoever made the programs."""
FAMILIES = ("redis", "valkey")
LOOK_AGAIN_SECONDS = 7 * 24 * 3600
"""A distribution mends its packages: what was unpacked longer ago is looked for anew."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    directory: Path
    """In which there are `redis-server` and `redis-cli`."""
    description: str
    """For people: what it is, its version, and where it is from."""
    imitation: bool = False


def find_redis(*, imitation: bool = False) -> RedisServer:
    """The server to start. Raises MissingError, with what can be done, where there is none.

    An imitation is given only to whoever allows it. Fetching a package takes some seconds, once a week.
    """
    installed = _installed()
    if installed is not None:
        return installed
    try:
        return _unpacked()
    except PackageError as error:
        if not imitation:
            raise WheelMissingError(_remedy(str(error))) from None
        if importlib.util.find_spec("fakeredis") is None:
            raise WheelMissingError(f"{_remedy(str(error))}; or for a look: {INSTALL}") from None
        return _imitated()


def _remedy(why: str) -> str:
    return (
        f"there is no redis-server and no valkey-server on the PATH, and no package could be unpacked ({why}); "
        "install one of them (Debian and Ubuntu: apt-get install redis-server)"
    )


def _installed() -> RedisServer | None:
    for family in FAMILIES:
        server, client = shutil.which(f"{family}-server"), shutil.which(f"{family}-cli")
        if server is None or client is None:
            continue
        directory = Path(server).parent
        if family != FAMILIES[0]:
            directory = _commands({SERVER: f'exec {quote(server)} "$@"', CLIENT: f'exec {quote(client)} "$@"'})
        return RedisServer(directory, f"{_version(Path(server))}, {server}")
    return None


def _version(server: Path) -> str:
    said = subprocess.run([server, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"(?P<name>\w+) server v=(?P<version>\S+)", said)
    return f"{found['name']} {found['version']}" if found else said.strip() or str(server)


def _unpacked() -> RedisServer:
    """One caller at a time: the others find what it unpacked. Raises PackageError."""
    parent = cache_directory() / "redis"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            directory = _unpacked_before(parent, younger_than=LOOK_AGAIN_SECONDS)
            try:
                directory = directory or unpack({f"{it}-server": _programs(it) for it in FAMILIES}, parent)
            except PackageError:
                # Without a network that of before is still better than none.
                directory = _unpacked_before(parent)
                if directory is None:
                    raise
    except OSError as error:
        raise PackageError(f"{error.filename}: {error.strerror}") from None
    server = directory / "bin" / SERVER
    return RedisServer(server.parent, f"{_version(server)}, {(directory / COMPLETE).read_text()}")


def _programs(family: str) -> dict[str, str]:
    return {f"{family}-server": SERVER, f"{family}-cli": CLIENT}


def _unpacked_before(parent: Path, *, younger_than: float | None = None) -> Path | None:
    marks = {it.stat().st_mtime: it for it in parent.glob(f"*/{COMPLETE}")}
    if not marks or (younger_than is not None and time.time() - max(marks) > younger_than):
        return None
    return marks[max(marks)].parent


def _imitated() -> RedisServer:
    module = f'exec {quote(sys.executable)} -m volsched.lab.stack.redis_imitation {{}} "$@"'
    directory = _commands({SERVER: module.format("serve"), CLIENT: module.format("ping")})
    description = f"fakeredis {version('fakeredis')}, an imitation: what this stack shows proves nothing"
    return RedisServer(directory, description, imitation=True)


def _commands(scripts: dict[str, str]) -> Path:
    """A directory with these commands, the same for the same ones."""
    text = {name: f"#!/bin/sh\n{script}\n" for name, script in scripts.items()}
    digest = hashlib.sha256("".join(text.values()).encode()).hexdigest()
    directory = cache_directory() / "commands" / digest[:16]
    directory.mkdir(parents=True, exist_ok=True)
    for name, script in text.items():
        if not (directory / name).exists():
            made = directory / f".{name}-{time.monotonic_ns()}"
            made.write_text(script)
            made.chmod(0o755)
            made.rename(directory / name)
    return directory
