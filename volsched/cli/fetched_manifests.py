"""Manifests that are not in a file: downloaded from a URL, or built by kustomize from a directory."""

import json
import re
import shutil
import subprocess
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from volsched.cli.console import Exit, fail
from volsched.kube.problems import BYTES_MAX

_LOGGED = re.compile(r'^[EF]\d{4} .*? err=(".*")$')
"""A line of klog: severity with date, time, thread, file and line, then a message with its fields."""
SECONDS = 30.0
ACCEPT = "application/yaml, application/json, */*"
BUILDERS = (("kustomize", "build"), ("kubectl", "kustomize"))
"""Programs that build kustomizations; the first one that is installed is used."""


def download(url: str) -> bytes:
    try:
        with urlopen(Request(url, headers={"Accept": ACCEPT}), timeout=SECONDS) as answer:
            data: bytes = answer.read(BYTES_MAX + 1)
    except HTTPError as error:
        fail(Exit.USAGE, f"{url} cannot be read: the answer is {error.code} {error.reason}; check the address")
    except (URLError, HTTPException, OSError, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        why = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        fail(Exit.USAGE, f"{url} cannot be read: {why}; check the address, or download it and give the file")
    if len(data) > BYTES_MAX:
        fail(Exit.USAGE, f"{url} answers with more than {BYTES_MAX >> 20} MiB; no manifest is so long")
    return data


def kustomize_output(directory: str) -> bytes:
    builder = next((it for it in BUILDERS if shutil.which(it[0])), None)
    if builder is None:
        fail(Exit.USAGE, "-k needs kustomize or kubectl, and neither is installed; install one, or use -f")
    if "://" not in directory and not Path(directory).is_dir():
        fail(Exit.USAGE, f"{directory} is no directory; -k takes one with a kustomization.yaml")
    ran = subprocess.run([*builder, directory], capture_output=True, check=False)
    if ran.returncode:
        why = _last_error(ran.stderr.decode(errors="replace"))
        fail(Exit.USAGE, f"{builder[0]} cannot build {directory}: {why}")
    return ran.stdout


def _last_error(errors: str) -> str:
    """The last line of the builder's errors, without the prefix of kubectl's log."""
    last = (errors.strip().splitlines() or ["no error output"])[-1].removeprefix("error: ").removeprefix("Error: ")
    logged = _LOGGED.search(last)
    if logged is None:
        return last
    try:
        return str(json.loads(logged[1]))
    except ValueError:
        return logged[1]
