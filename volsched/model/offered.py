"""What `volsched.model` offers to other programs."""

from volsched.model.manifests import Loaded, dump_manifests, load_manifests
from volsched.model.problems import ManifestError
from volsched.model.quantity import Quantity, parse_quantity

__all__ = ["Loaded", "ManifestError", "Quantity", "dump_manifests", "load_manifests", "parse_quantity"]
