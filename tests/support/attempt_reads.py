"""Attempts and conditions of a pod in a stepped system."""

from typing import Any

from sqlalchemy import select

from tests.support.clusters import Stepped
from volsched.log import tables


def attempts(stepped: Stepped, name: str = "db") -> list[Any]:
    made = tables.attempts
    asked = select(made).where(made.c.pod == f"default/{name}").order_by(made.c.first_at, made.c.id)
    with stepped.database.read() as connection:
        return list(connection.execute(asked))


def condition(stepped: Stepped, name: str = "db") -> dict[str, Any] | None:
    held = stepped.cluster.get("Pod", f"default/{name}") or {}
    found = held["status"].get("conditions", [])
    return next((it for it in found if it["type"] == "PodScheduled"), None)


def change(stepped: Stepped, kind: str, key: str, *, to_status: bool = False, **parts: Any) -> None:
    held = dict(stepped.cluster.get(kind, key) or {})
    stepped.cluster.update(kind, held | parts, status=to_status)
