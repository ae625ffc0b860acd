"""volsched: topology-aware volume scheduling whose every decision is kept, explained and replayable."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volsched.library import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """The engine is loaded when it is asked for: who only wants the rules does not pay for a database."""
    if name == "Engine":
        from volsched.library import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
