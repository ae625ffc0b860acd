"""A program of a Debian package, unpacked into a directory of one's own: neither installed nor with root's rights.

The index is fetched anew and kept aside: the machine's own may be months old, or missing, and only root can renew
it. apt checks the archive's signature and every hash, as it does when it installs.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE_SECONDS = 300.0
"""For one command of apt's. An index is ten megabytes."""
RETRIES, SILENCE_SECONDS = 2, 20
COMPLETE = "complete"
"""The file that is written last, and says what was unpacked."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


class PackageError(Exception):
    """The package cannot be had here; the message says why."""


def unpack(packages: Mapping[str, Mapping[str, str]], parent: Path) -> Path:
    """Unpack the first of these packages that the distribution has, in its newest version, below `parent`.

    Each is given with its programs and what they shall be called in the directory's `bin`. What they need beside
    it and is not installed is unpacked too. One caller at a time. Raises PackageError.
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
                _run(["dpkg-deb", "--extract", str(file), str(unpacked / "root")])
            _write_starters(unpacked, packages[package])
        (unpacked / COMPLETE).write_text(f"package {package} {version}")
    return unpacked


class _Apt:
    """apt with an index of its own, and the machine's sources and keys."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("lists/partial", "cache/archives/partial"):
            (directory / name).mkdir(parents=True)
        options = {
            "Dir::State::lists": str(directory / "lists"),
            "Dir::Cache": str(directory / "cache"),
            # Images switch these off to be small; then every question reads the whole index.
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "Acquire::Retries": str(RETRIES),
            "Acquire::http::Timeout": str(SILENCE_SECONDS),
            "Acquire::https::Timeout": str(SILENCE_SECONDS),
            "Acquire::Languages": "none",
            # Root would hand downloads over to another user, who may not be let into our directory.
            **({"APT::Sandbox::User": "root"} if os.geteuid() == 0 else {}),
        }
        self._options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    def update(self) -> str:
        """What went wrong, if anything: a source of something else that is gone is no hindrance."""
        try:
            _run(["apt-get", "update", "--quiet", *self._options])
        except PackageError as error:
            return str(error)
        return ""

    def fields(self, package: str) -> dict[str, str]:
        """Of the version that would be installed; empty where there is none."""
        command = ["apt-cache", "show", "--no-all-versions", *self._options, package]
        shown = subprocess.run(command, capture_output=True, text=True, env=_environment())
        lines = (it.partition(": ") for it in shown.stdout.partition("\n\n")[0].splitlines())
        return {key: value for key, _, value in lines} if shown.returncode == 0 else {}

    def download(self, packages: Sequence[str]) -> list[Path]:
        _run(["apt-get", "download", "--quiet", *self._options, *packages], directory=self._directory)
        return sorted(self._directory.glob("*.deb"))


def _closure(apt: _Apt, package: str) -> list[str]:
    """The package, others of its family, and libraries that are not installed.

    Of what else it depends on (users, services, maintainers' scripts) the programs themselves need nothing.
    """
    family = package.partition("-")[0] + "-"
    names = [package]
    for name in names:
        fields = apt.fields(name)
        for choices in f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}".split(","):
            said = [it[0] for choice in choices.split("|") if (it := NAME.search(choice))]
            wanted = [it for it in said if it.startswith(("lib", family))]
            if wanted and wanted[0] not in names and not any(map(_installed, said)):
                names.append(wanted[0])
    return names


def _installed(package: str) -> bool:
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\n", package]
    told = subprocess.run(command, capture_output=True, text=True, env=_environment())
    return "installed" in told.stdout.split()


def _write_starters(unpacked: Path, programs: Mapping[str, str]) -> None:
    """Commands that start the programs with the libraries that lie beside them; each is tried."""
    (unpacked / "bin").mkdir()
    libraries = shlex.quote(":".join(sorted({str(it.parent) for it in (unpacked / "root").rglob("*.so*")})))
    for program, called in programs.items():
        starter = unpacked / "bin" / called
        command = shlex.quote(str(unpacked / "root" / "usr" / "bin" / program))
        starter.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {command} "$@"\n')
        starter.chmod(0o755)
        # A library that is missing after all shall be known now, and not when a stack starts.
        _run([str(starter), "--version"])


def _run(command: Sequence[str], *, directory: Path | None = None) -> None:
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
    """In English, and without questions."""
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
