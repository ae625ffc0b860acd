"""The rules of volume scheduling: pure functions over plain values, one home for each rule.

No I/O, clock, randomness or globals; it imports `events` and `model` only, and everything above may import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volsched.core.offered import *  # noqa: F403 (what is offered is listed once, there)


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: who imports one module of the rules does not pay for all of them."""
    offered = import_module("volsched.core.offered")
    if name in offered.__all__:
        return getattr(offered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
