"""Manifests that are not in a file yet: what a URL answers, and what kustomize makes of a directory."""

import shutil
import subprocess
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from volsched.cli.console import Exit, fail
from volsched.kube.problems import BYTES_MAX

SECONDS = 30.0
ACCEPT = "application/yaml, application/json, */*"
BUILDERS = (("kustomize", "build"), ("kubectl", "kustomize"))
"""Programs that know kustomizations, the first that is installed."""


def downloaded(url: str) -> bytes:
    try:
        with urlopen(Request(url, headers={"Accept": ACCEPT}), timeout=SECONDS) as answer:
            data: bytes = answer.read(BYTES_MAX + 1)
    except HTTPError as error:
        fail(Exit.USAGE, f"{url} cannot be read: the answer is {error.code} {error.reason}; check the address")
    except (URLError, HTTPException, OSError, ValueError) as error:
        why = error.reason if isinstance(error, URLError) else error
        fail(Exit.USAGE, f"{url} cannot be read: {why}; check the address, or download it and give the file")
    if len(data) > BYTES_MAX:
        fail(Exit.USAGE, f"{url} answers with more than {BYTES_MAX >> 20} MiB; no manifest is so long")
    return data


def kustomized(directory: str) -> bytes:
    builder = next((it for it in BUILDERS if shutil.which(it[0])), None)
    if builder is None:
        fail(Exit.USAGE, "-k needs kustomize or kubectl, and neither is installed; install one, or use -f")
    if "://" not in directory and not Path(directory).is_dir():
        fail(Exit.USAGE, f"{directory} is no directory; -k takes one with a kustomization.yaml")
    ran = subprocess.run([*builder, directory], capture_output=True, check=False)
    if ran.returncode:
        why = ran.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        fail(Exit.USAGE, f"{builder[0]} cannot build {directory}: {why[-1].removeprefix('error: ')}")
    return ran.stdout
