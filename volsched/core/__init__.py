"""The rules of volume scheduling: pure functions over plain values, one home for each rule.

A façade for programs that use volsched as a library: the rules themselves are in the `rules` of each room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volsched.core.exports import *  # noqa: F403 (what is offered is listed once, there)


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: importing the package does not load the rules."""
    offered = import_module("volsched.core.exports")
    if name in offered.__all__:
        return getattr(offered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
