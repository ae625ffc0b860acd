"""The world of a binding transaction, on our own log and on a foreign cluster; a volume that is stolen."""

from tests.support.binding_scene import where, world
from tests.support.volume_theft import stepped

__all__ = ["stepped", "where", "world"]
