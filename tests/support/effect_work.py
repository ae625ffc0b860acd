"""Work in the queue of effects."""

from typing import Any

from volsched.log.commands import Command
from volsched.log.events.fold import Decision, NewEffect


def effect(key: str, lane: str | None = None, *, queue: str = "prebind", due: int = 0, **data: Any) -> NewEffect:
    return NewEffect(key=key, lane=lane or f"lane of {key}", queue=queue, kind="prebind", due=due, data=data)


def queue_up(*effects: NewEffect) -> Command:
    """A command without events, so that all its effects share a position with what came before."""
    return Command(actor="test", streams=(), decide=lambda _: Decision(effects=effects))
