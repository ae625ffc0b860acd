"""The provisioners that come with volsched."""

from pathlib import Path

from volsched.provisioning.host_path import HostPath
from volsched.provisioning.protocol import Provisioner
from volsched.provisioning.simulated import Simulated
from volsched.scheduling.rules.configuration import ConfigurationError


def built_in(*, host_path_root: Path | None, store: str) -> list[Provisioner]:
    """Directories are made only where somebody has said under which root; simulated volumes touch nothing."""
    try:
        directories = [] if host_path_root is None else [HostPath(host_path_root, store)]
    except OSError as error:
        problem = f"{host_path_root} cannot be used ({error.strerror}); name a directory that can be written"
        raise ConfigurationError([f"VOLSCHED_HOST_PATH_ROOT: {problem}"]) from error
    return [Simulated(), *directories]
