"""Kubeconfigs: merges several, and derives the access from a context. Files are read elsewhere.

As in kubectl, the first file that defines a name wins, the first `current-context` counts, and paths are relative
to the file that contains them.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from volsched.kube.meta import DEFAULT_NAMESPACE

CONFIG_REMEDY = "name one with --kubeconfig or KUBECONFIG, or run inside the cluster"
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class KubeconfigError(Exception):
    """The address or the credentials of a cluster cannot be determined; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class KubeconfigFile:
    path: str
    content: object
    """The parsed YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = EXEC_VERSIONS[0]
    install_hint: str = ""
    provide_cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The address of a server, and how both sides authenticate. Data and files exclude each other."""

    server: str
    context: str = ""
    namespace: str = DEFAULT_NAMESPACE
    ca_data: bytes | None = None
    ca_file: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy: str | None = None
    token: str | None = None
    token_file: str | None = None
    certificate_data: bytes | None = None
    certificate_file: str | None = None
    key_data: bytes | None = None
    key_file: str | None = None
    plugin: ExecPlugin | None = None


def merge(files: Sequence[KubeconfigFile]) -> dict[str, Any]:
    """Merge several kubeconfigs into one."""
    result: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for file in files:
        if file.content is None:
            continue
        if not isinstance(file.content, Mapping):
            raise KubeconfigError(f"{file.path} is not a kubeconfig: it has no fields; {CONFIG_REMEDY}")
        result["current-context"] = result["current-context"] or str(file.content.get("current-context") or "")
        for part, single in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for name, entry in _entries(file, part, single):
                result[part].setdefault(name, _absolute(entry, file.path))
    return result


def choose(config: Mapping[str, Any], context: str | None = None) -> ClusterAccess:
    """The access of the context, or of the current one."""
    name = context or config["current-context"]
    known = ", ".join(sorted(config["contexts"])) or "none"
    if not name:
        raise KubeconfigError(f"the kubeconfig names no current context; choose one with --context: {known}")
    if name not in config["contexts"]:
        raise KubeconfigError(f'the kubeconfig has no context "{name}"; choose one with --context: {known}')
    chosen = config["contexts"][name]
    cluster = _entry_of(config, "clusters", chosen.get("cluster"), name)
    user = _entry_of(config, "users", chosen["user"], name) if chosen.get("user") else {}
    _refuse_old(user, name)
    server = str(cluster.get("server") or "")
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(f'the cluster of context "{name}" has no server; set its server: https://HOST:PORT')
    return ClusterAccess(
        server=server.rstrip("/"),
        context=name,
        namespace=str(chosen.get("namespace") or "default"),
        ca_data=_from_base64(cluster, "certificate-authority-data", name),
        ca_file=_text(cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=_text(cluster, "tls-server-name"),
        proxy=_text(cluster, "proxy-url"),
        token=_text(user, "token"),
        # As kubectl: a file wins, because it can be renewed.
        token_file=_text(user, "tokenFile"),
        certificate_data=_from_base64(user, "client-certificate-data", name),
        certificate_file=_text(user, "client-certificate"),
        key_data=_from_base64(user, "client-key-data", name),
        key_file=_text(user, "client-key"),
        plugin=_plugin(user.get("exec"), name),
    )


def in_cluster(environment: Mapping[str, str], *, directory: str) -> ClusterAccess | None:
    """The access of a pod; None outside of pods. `directory` has the service account's files."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    address = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        server=f"https://{address}:{port}",
        context="in-cluster",
        ca_file=f"{directory}/ca.crt",
        token_file=f"{directory}/token",
    )


def _entries(file: KubeconfigFile, part: str, single: str) -> list[tuple[str, Mapping[str, Any]]]:
    assert isinstance(file.content, Mapping)
    entries = []
    for entry in file.content.get(part) or ():
        if (
            not isinstance(entry, Mapping)
            or not entry.get("name")
            or not isinstance(entry.get(single) or {}, Mapping)
        ):
            raise KubeconfigError(f"{file.path}: an entry of {part} has no name or no {single}; correct the file")
        entries.append((str(entry["name"]), entry.get(single) or {}))
    return entries


def _absolute(entry: Mapping[str, Any], path: str) -> dict[str, Any]:
    directory = PurePath(path).parent
    relative = {name: str(directory / str(entry[name])) for name in _PATHS if entry.get(name)}
    plugin = entry.get("exec")
    if isinstance(plugin, Mapping) and "/" in str(plugin.get("command", "")):
        relative["exec"] = {**plugin, "command": str(directory / str(plugin["command"]))}  # type: ignore[assignment]
    return {**entry, **relative}


def _entry_of(config: Mapping[str, Any], part: str, name: object, context: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] | None = config[part].get(name)
    if entry is None:
        raise KubeconfigError(
            f'context "{context}" names {part[:-1]} "{name}", which the kubeconfig does not have'
        )
    return entry


def _refuse_old(user: Mapping[str, Any], context: str) -> None:
    if user.get("auth-provider"):
        raise KubeconfigError(
            f'the user of context "{context}" has an auth-provider, which Kubernetes removed in 1.26; use an '
            "exec plugin (for example kubelogin, gke-gcloud-auth-plugin)"
        )
    if user.get("username") or user.get("password"):
        raise KubeconfigError(
            f'the user of context "{context}" has a password, which API servers no longer accept; use a token '
            "or a client certificate"
        )


def _plugin(entry: object, context: str) -> ExecPlugin | None:
    if not entry:
        return None
    if not isinstance(entry, Mapping) or not entry.get("command"):
        raise KubeconfigError(f'the exec plugin of context "{context}" has no command; correct the kubeconfig')
    version = str(entry.get("apiVersion") or "")
    if version not in EXEC_VERSIONS:
        known = " or ".join(EXEC_VERSIONS)
        raise KubeconfigError(
            f'the exec plugin of context "{context}" has apiVersion "{version}"; upgrade it to {known}'
        )
    if entry.get("interactiveMode") == "Always":
        raise KubeconfigError(
            f'the exec plugin of context "{context}" wants a terminal (interactiveMode: Always), and there is '
            "none; log in with it first and set interactiveMode: IfAvailable"
        )
    return ExecPlugin(
        command=str(entry["command"]),
        arguments=tuple(str(it) for it in entry.get("args") or ()),
        environment={str(it["name"]): str(it["value"]) for it in entry.get("env") or ()},
        api_version=version,
        install_hint=str(entry.get("installHint") or ""),
        provide_cluster=bool(entry.get("provideClusterInfo")),
    )


def _text(entry: Mapping[str, Any], name: str) -> str | None:
    return str(entry[name]) if entry.get(name) else None


def _from_base64(entry: Mapping[str, Any], name: str, context: str) -> bytes | None:
    if not entry.get(name):
        return None
    try:
        return base64.b64decode(str(entry[name]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise KubeconfigError(f'{name} of context "{context}" is not base64; correct the kubeconfig') from error
