"""`volsched.io/host-path`: a directory per volume under one root, for a machine that simulates several nodes.

Directories are really created and removed, so every step is idempotent, and nothing is touched that was not
created here: a record under `.made` lists it. The record is written before the directory and removed after it, so
a crash leaves a record without a directory, never the reverse.

Rejected: a marker file inside the directory. It would be part of the user's data, and the user could delete it.
"""

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from volsched.kube.meta import HOSTNAME
from volsched.kube.storage import FILESYSTEM
from volsched.provisioning.protocol import Manifest, Surroundings, Unfinished
from volsched.provisioning.rules import NO_SELECTOR
from volsched.pv_controller.rules import PluginError, Provision, VolumePlugin, parsed_claim

HOST_PATH = "volsched.io/host-path"
RECORDS = ".made"
NO_ATTRIBUTES = (
    "creates directories, which have no attributes; remove volumeAttributesClassName from the claim, or use a "
    "class of a CSI driver"
)
NEEDS_NODE = "a directory belongs to one node; use a class with volumeBindingMode WaitForFirstConsumer"


@dataclass(slots=True)
class HostPath:
    root: Path
    store: str = ""
    """The store that owns the directories. Volumes of another store under the same root are not leftovers."""
    plugin: VolumePlugin = field(
        default_factory=lambda: VolumePlugin(name=HOST_PATH, recycles=True, sources=frozenset({"hostPath"}))
    )

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise ValueError(f"the root {self.root} of {HOST_PATH} must be an absolute path")
        (self.root / RECORDS).mkdir(parents=True, exist_ok=True)
        self.root = self.root.resolve()

    def provision(self, request: Provision, now: int) -> Manifest | Unfinished:  # noqa: ARG002 - takes no time
        claim = parsed_claim(request.claim).value
        if claim.selector is not None:
            raise PluginError(NO_SELECTOR)
        if claim.mode != FILESYSTEM:
            raise PluginError(f"{HOST_PATH} creates file systems only; request volumeMode {FILESYSTEM}")
        if claim.attributes_class:
            raise PluginError(f"{HOST_PATH} {NO_ATTRIBUTES}")
        if request.node is None:
            raise PluginError(NEEDS_NODE)
        host = (request.node["metadata"].get("labels") or {}).get(HOSTNAME)
        if host is None:
            raise PluginError(f"node {request.node['metadata']['name']} lacks the label {HOSTNAME}")
        path = self._path(request.volume_name)
        self._make(path)
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [host]}]}
        return {
            "spec": {
                "capacity": {"storage": str(claim.size)},
                "accessModes": list(claim.access_modes),
                "volumeMode": FILESYSTEM,
                "hostPath": {"path": str(path), "type": "Directory"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            }
        }

    def delete(self, volume: Manifest, now: int) -> Unfinished | None:  # noqa: ARG002
        path = self._path_of(volume)
        if self._is_there(path):
            self._try(lambda: shutil.rmtree(path), "removed", path)
        self._try(lambda: self._record(path).unlink(missing_ok=True), "forgotten", path)
        return None

    def recycle(self, volume: Manifest, now: int) -> Unfinished | None:  # noqa: ARG002
        path = self._path_of(volume)
        if not self._is_there(path):
            raise PluginError(f"{path} is gone; recreate it or set the reclaim policy to Delete")
        self._try(lambda: _empty(path), "emptied", path)
        return None

    def observe(self, surroundings: Surroundings) -> None:
        """Nothing to do: directories do not depend on the cluster."""

    def capacities(self) -> Sequence[Manifest]:
        """None: the volumes share one file system with other data, so their capacity is not counted."""
        return ()

    def volume_names(self) -> Collection[str]:
        return [entry.name for entry in os.scandir(self.root / RECORDS)]

    def discard(self, name: str) -> bool:
        """Removes only an empty directory of our own store: any other may be in use or owned."""
        path = self._path(name)
        if self._record(path).read_text() != self.store:
            return False
        if self._is_there(path):
            try:
                path.rmdir()
            except OSError:
                return False
        self._record(path).unlink(missing_ok=True)
        return True

    def _make(self, path: Path) -> None:
        record = self._record(path)
        ours = record.exists()
        if not ours and os.path.lexists(path):
            raise PluginError(f"{path} exists and was not created by {HOST_PATH}; move it away")
        if ours and self._is_there(path) and any(path.iterdir()):
            raise PluginError(f"{path} holds files already and is not given to another claim; move them away")

        def make() -> None:
            if not ours:
                record.write_text(self.store)
            path.mkdir(exist_ok=True)

        self._try(make, "made", path)

    def _path(self, name: str) -> Path:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise PluginError(f'"{name}" cannot be the name of a directory under {self.root}')
        return self.root / name

    def _path_of(self, volume: Manifest) -> Path:
        """The volume's directory, always derived from its name; refuses an object with another path."""
        path = self._path(volume["metadata"]["name"])
        given = (volume["spec"].get("hostPath") or {}).get("path")
        if given != str(path):
            raise PluginError(f"the volume's path {given} is not {path}; nothing outside is touched")
        if os.path.lexists(path) and not self._record(path).exists():
            raise PluginError(f"{path} was not created by {HOST_PATH}; remove it by hand")
        return path

    def _is_there(self, path: Path) -> bool:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise PluginError(f"{path} is not the directory that was created there; find out what replaced it")
        return path.exists()

    def _record(self, path: Path) -> Path:
        return self.root / RECORDS / path.name

    def _try(self, act: Callable[[], object], done: str, path: Path) -> None:
        try:
            act()
        except OSError as error:
            raise PluginError(f"{path} cannot be {done}: {error.strerror}; check its permissions") from error


def _empty(path: Path) -> None:
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
