"""Plain values: quantities, selectors, objects, and the manifests they are read from.

Nothing here knows a scheduling rule; every other layer may import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volsched.model.offered import *  # noqa: F403 (what is offered is listed once, there)


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: who imports one module does not pay for reading YAML."""
    offered = import_module("volsched.model.offered")
    if name in offered.__all__:
        return getattr(offered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
