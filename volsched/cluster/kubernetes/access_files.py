"""Where our access to a cluster is written down: kubeconfig files, or what a pod is given by its cluster."""

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
    """As kubectl looks for it: the file that is named, KUBECONFIG, ~/.kube/config; else what a pod is given."""
    if kubeconfig is not None:
        return choose(merge([_read(kubeconfig)]), context)
    if named := environment.get("KUBECONFIG"):
        # A file of the list that is missing is left out, as long as there is one.
        paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        present = [path for path in paths if path.exists()]
        if not present:
            raise KubeconfigError(f"KUBECONFIG names {named}, which does not exist; {CONFIG_REMEDY}")
        return choose(merge([_read(path) for path in present]), context)
    usual = (home or Path.home()) / ".kube" / "config"
    if usual.exists():
        return choose(merge([_read(usual)]), context)
    given = in_cluster(environment, directory=service_account)
    if given is None:
        raise KubeconfigError(f"there is no kubeconfig at {usual}, and this is no pod; {CONFIG_REMEDY}")
    return given


def _read(path: Path) -> KubeconfigFile:
    try:
        return KubeconfigFile(str(path.absolute()), yaml.safe_load(path.read_text()))
    except OSError as error:
        raise KubeconfigError(f"{path} cannot be read: {error.strerror}; {CONFIG_REMEDY}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path} is not YAML; correct it, or {CONFIG_REMEDY}") from error
