"""A kubeconfig: where the server is, how it proves itself, and how its user does."""

import base64
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
    """Whole in itself: it names no files that could be missing where it is used."""
    cluster = {"server": server} | ({} if ca is None else {"certificate-authority-data": _encoded(ca)})
    credentials = {} if token is None else {"token": token}
    if certificate is not None and key is not None:
        credentials = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
    context = {"cluster": NAME, "user": user} | ({} if namespace is None else {"namespace": namespace})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
