"""A kubeconfig: where the server is and how both sides authenticate, in a file that only its owner can read."""

import base64
import os
from pathlib import Path
from typing import Any

NAME = "volsched"


def kubeconfig(
    server: str,
    *,
    user: str,
    ca: bytes | None = None,
    token: str | None = None,
    certificate: bytes | None = None,
    key: bytes | None = None,
    namespace: str | None = None,
) -> dict[str, Any]:
    """Self-contained: it names no files that could be missing where it is used."""
    cluster = {"server": server} | ({} if ca is None else {"certificate-authority-data": _base64(ca)})
    credentials = {} if token is None else {"token": token}
    if certificate is not None and key is not None:
        credentials = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    context = {"cluster": NAME, "user": user} | ({} if namespace is None else {"namespace": namespace})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# Files that only their owner may read.


def write_secret(path: Path, content: bytes) -> None:
    """Private from the first byte on; an existing file, and its permissions, do not matter."""
    aside = path.with_name(f"{path.name}.part")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    aside.replace(path)
