"""Our credentials for a cluster: re-reads token files, and re-runs plugins when their credentials expire."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from volsched.cluster.kubernetes.kubeconfig import ClusterAccess, ExecPlugin, KubeconfigError

READ_AGAIN_SECONDS = 60.0
"""Tokens of pods are renewed about hourly, long before they expire."""
PLUGIN_SECONDS = 60.0
EARLY_SECONDS = 30.0
"""A credential is renewed this long before it expires: a request takes a while, and clocks differ."""


@dataclass(frozen=True, slots=True)
class Credential:
    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    expires_at: float | None = None
    """Expiry in seconds since 1970; None: unknown, or never."""


@dataclass(slots=True)
class CredentialSource:
    access: ClusterAccess
    now: Callable[[], float]
    """The present time in seconds since 1970, as plugins report the expiry."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _credential: Credential | None = None
    _read_at: float = 0.0

    def current(self) -> Credential:
        """The credential to send; KubeconfigError if it cannot be obtained."""
        credential = self._credential
        if credential is None or self._is_over(credential):
            credential = self._credential = self._obtain()
            self._read_at = self.now()
        return credential

    def renew(self) -> bool:
        """Obtain the credential again after a 401. False if it cannot have changed."""
        self._credential = None
        return self.access.plugin is not None or self.access.token_file is not None

    def remedy(self) -> str:
        """The remedy for a 401."""
        if self.access.plugin is not None:
            return f'log in again with "{self.access.plugin.command}"'
        if self.access.token_file is not None:
            return f"check what renews the token in {self.access.token_file}"
        if self.access.token is not None:
            return f'put a new token into context "{self.access.context}" of the kubeconfig'
        if self.access.certificate_data is not None or self.access.certificate_file is not None:
            return f'renew the client certificate of context "{self.access.context}"'
        return f'context "{self.access.context}" has no credentials: add a token, a certificate or an exec plugin'

    def _is_over(self, credential: Credential) -> bool:
        if credential.expires_at is not None:
            return self.now() >= credential.expires_at - EARLY_SECONDS
        return self.access.token_file is not None and self.now() - self._read_at >= READ_AGAIN_SECONDS

    def _obtain(self) -> Credential:
        access = self.access
        if access.plugin is not None:
            return exec_credential(self._run(access.plugin), access.plugin)
        token = access.token
        if access.token_file is not None:
            token = _read(access.token_file, "the token").decode().strip()
        certificate, key = access.certificate_data, access.key_data
        if certificate is None and access.certificate_file is not None:
            certificate = _read(access.certificate_file, "the client certificate")
        if key is None and access.key_file is not None:
            key = _read(access.key_file, "the client key")
        return Credential(token, certificate, key)

    def _run(self, plugin: ExecPlugin) -> str:
        environment = {
            **self.environment,
            **plugin.environment,
            "KUBERNETES_EXEC_INFO": exec_info(plugin, self.access),
        }
        hint = f"; {plugin.install_hint}" if plugin.install_hint else "; install it, or correct the kubeconfig"
        try:
            result = subprocess.run(
                [plugin.command, *plugin.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PLUGIN_SECONDS,
                check=False,
            )
        except OSError as error:
            raise KubeconfigError(
                f'the exec plugin "{plugin.command}" cannot be run: {error.strerror}{hint}'
            ) from error
        except subprocess.TimeoutExpired as error:
            raise KubeconfigError(
                f'the exec plugin "{plugin.command}" gave no answer within {PLUGIN_SECONDS:.0f} s; log in with it '
                "in a terminal first"
            ) from error
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no error output"])[-1]
            raise KubeconfigError(
                f'the exec plugin "{plugin.command}" failed with {result.returncode}: {last}; log in with it first'
            )
        return result.stdout


def exec_info(plugin: ExecPlugin, access: ClusterAccess) -> str:
    """The input of a plugin: it may never ask the user anything."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster:
        spec["cluster"] = {"server": access.server} | (
            {"tls-server-name": access.tls_server_name} if access.tls_server_name else {}
        )
    return json.dumps({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec})


def exec_credential(text: str, plugin: ExecPlugin) -> Credential:
    """The credential in a plugin's output."""
    try:
        status = json.loads(text)["status"]
        expires = status.get("expirationTimestamp")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        credential = Credential(
            token=status.get("token"),
            certificate=None if certificate is None else certificate.encode(),
            key=None if key is None else key.encode(),
            expires_at=None if not expires else datetime.fromisoformat(expires).astimezone(UTC).timestamp(),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KubeconfigError(
            f'the exec plugin "{plugin.command}" returned no ExecCredential; run it by hand to see its output'
        ) from error
    if credential.token is None and (credential.certificate is None or credential.key is None):
        raise KubeconfigError(
            f'the exec plugin "{plugin.command}" returned neither a token nor a certificate; log in with it'
        )
    return credential


def _read(path: str, description: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"{description} in {path} cannot be read: {error.strerror}; correct the kubeconfig"
        ) from error
