"""Finds the access to a cluster: in kubeconfig files, or in the service account of the pod."""

import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from volsched.cluster.kubernetes.kubeconfig import (
    CONFIG_REMEDY,
    ClusterAccess,
    KubeconfigError,
    KubeconfigFile,
    choose,
    in_cluster,
    merge,
)

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def find_access(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: str = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """Searches as kubectl does: the named file, KUBECONFIG, ~/.kube/config; else the pod's service account."""
    if kubeconfig is not None:
        return choose(merge([_read(kubeconfig)]), context)
    if paths_text := environment.get("KUBECONFIG"):
        # Missing files of the list are ignored, as long as one exists.
        paths = [Path(part).expanduser() for part in paths_text.split(os.pathsep) if part]
        present = [path for path in paths if path.exists()]
        if not present:
            raise KubeconfigError(f"KUBECONFIG names {paths_text}, which does not exist; {CONFIG_REMEDY}")
        return choose(merge([_read(path) for path in present]), context)
    default_path = (home or Path.home()) / ".kube" / "config"
    if default_path.exists():
        return choose(merge([_read(default_path)]), context)
    pod_access = in_cluster(environment, directory=service_account)
    if pod_access is None:
        raise KubeconfigError(f"there is no kubeconfig at {default_path}, and this is not a pod; {CONFIG_REMEDY}")
    return pod_access


def _read(path: Path) -> KubeconfigFile:
    try:
        return KubeconfigFile(str(path.absolute()), yaml.safe_load(path.read_text()))
    except OSError as error:
        raise KubeconfigError(f"{path} cannot be read: {error.strerror}; {CONFIG_REMEDY}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path} is not YAML; correct it, or {CONFIG_REMEDY}") from error
