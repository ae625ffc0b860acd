"""Small reads by key: where a pod is, what is on a node, what is attached, what an idempotent command answered."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic_core import from_json
from sqlalchemy import Connection, select

from volsched.log import tables
from volsched.log.rows import VIEWS

_pods, _attachments, _commands = tables.pods, tables.attachments, tables.commands


def node_of_pod(connection: Connection, key: str) -> str | None:
    return connection.execute(select(_pods.c.node).where(_pods.c.key == key)).scalar()


def pods_on(connection: Connection, node: str, *, namespace: str) -> list[dict[str, Any]]:
    """The manifests of the pods that are bound to the node."""
    query = select(_pods.c.manifest).where(
        _pods.c.node == node, _pods.c.key.startswith(f"{namespace}/", autoescape=True)
    )
    return [orjson.loads(text) for text in connection.execute(query).scalars()]


def attachments_of(connection: Connection, volume: str) -> list[str]:
    """The keys of its VolumeAttachments."""
    return list(connection.execute(select(_attachments.c.key).where(_attachments.c.volume == volume)).scalars())


def result_of(connection: Connection, idempotency_key: str) -> Mapping[str, Any] | None:
    """What the command with this key answered, if it is still known."""
    text = connection.execute(select(_commands.c.result).where(_commands.c.key == idempotency_key)).scalar()
    return None if text is None else from_json(text)


def keys_of(connection: Connection, noun: str) -> list[str]:
    """The keys of all objects of a kind, in order."""
    table, _ = VIEWS[noun]
    return list(connection.execute(select(table.c.key).order_by(table.c.key)).scalars())
