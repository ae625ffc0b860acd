"""What a server is shown, and by what it is believed: tokens, certificates, and the kubeconfig that holds them."""

import atexit
import base64
import binascii
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from volsched.cli.console import Exit, fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    server: str = ""
    token: str | None = None
    ca_file: Path | None = None
    ca_data: str | None = None
    certificate: Path | None = None
    key: Path | None = None


def read_secret(name: str) -> str:
    """A token of a file; what else the file holds is never shown."""
    try:
        text = (sys.stdin.read() if name == "-" else Path(name).read_text(encoding="ascii")).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        fail(Exit.USAGE, f"{name} cannot be read: {why}; give the file of a token")
    if not text or not text.isprintable() or " " in text:
        fail(Exit.USAGE, f"{name} holds no token; give what volsched token create has written")
    return text


def of_kubeconfig(path: Path) -> Credentials:
    """What its current context says."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}; check the path and its permissions")
    except (yaml.YAMLError, UnicodeDecodeError):
        # What stands in it is not shown: it holds secrets.
        fail(Exit.USAGE, f"{path} is no kubeconfig; write one with: volsched kubeconfig --out {path}")
    try:
        context = _named(document, "contexts", document["current-context"])["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context.get("user", "")).get("user") or {}
        return _credentials(path.parent, cluster, user)
    except (KeyError, TypeError, AttributeError, binascii.Error, UnicodeDecodeError):
        fail(
            Exit.USAGE,
            f"{path} has no current-context with a cluster and a user; write one with: volsched kubeconfig",
        )


def _credentials(directory: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
    token = user.get("token")
    if token is None and "tokenFile" in user:
        token = read_secret(str(directory / user["tokenFile"]))
    data = cluster.get("certificate-authority-data")
    return Credentials(
        server=str(cluster["server"]),
        token=token,
        ca_file=_path(directory, cluster.get("certificate-authority")),
        ca_data=None if data is None else base64.b64decode(data).decode("ascii"),
        certificate=_file(directory, user, "client-certificate"),
        key=_file(directory, user, "client-key"),
    )


def _named(document: Mapping[str, Any], part: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((it for it in document.get(part) or () if it.get("name") == name), {})
    return found


def _path(directory: Path, name: str | None) -> Path | None:
    """As kubectl reads it: beside the kubeconfig, unless it says otherwise."""
    return None if name is None else directory / name


def _file(directory: Path, user: Mapping[str, Any], field: str) -> Path | None:
    """TLS takes it from files alone: what stands in the kubeconfig itself is in one, only ours, until we end."""
    if f"{field}-data" not in user:
        return _path(directory, user.get(field))
    content = base64.b64decode(user[f"{field}-data"])
    handle, name = tempfile.mkstemp(prefix="volsched-")
    atexit.register(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as out:
        out.write(content)
    return Path(name)
