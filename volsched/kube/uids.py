"""Uids look like UUIDs wherever they come from: clients and other controllers parse them."""

from hashlib import blake2b
from uuid import UUID


def uid_of(id_: str) -> str:
    """The uid that stands for an id: the same for the same, so that simulations and tests can be repeated."""
    return str(UUID(bytes=blake2b(id_.encode(), digest_size=16).digest(), version=4))
