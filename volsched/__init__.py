"""volsched: topology-aware volume scheduling whose every decision is kept, explained and replayable."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volsched.library import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """Loads the engine on first use: programs that only use the rules do not load the database code."""
    if name == "Engine":
        from volsched.library import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
