"""Plain values: quantities, selectors, objects, and the manifests they are read from.

Nothing here knows a scheduling rule; every other layer may import it.
"""

from volsched.model.manifests import Loaded, dump_manifests, load_manifests
from volsched.model.problems import ManifestError
from volsched.model.quantity import Quantity, parse_quantity

__all__ = ["Loaded", "ManifestError", "Quantity", "dump_manifests", "load_manifests", "parse_quantity"]
