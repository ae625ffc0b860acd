"""The names that programs with volsched as a library import to read and write manifests. The code is in `kube`."""

from volsched.kube.manifest_reader import Loaded, dump_manifests, load_manifests
from volsched.kube.problems import ManifestError
from volsched.kube.quantity import Quantity, parse_quantity

__all__ = ["Loaded", "ManifestError", "Quantity", "dump_manifests", "load_manifests", "parse_quantity"]
