"""The world of a binding transaction, on our own log and on a foreign cluster."""

from tests.support.binding_scene import where, world

__all__ = ["where", "world"]
