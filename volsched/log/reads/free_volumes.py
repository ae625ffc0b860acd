"""Free volumes in outline: most volumes of a large store differ in name and size only, and few have to be read."""

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, Select, and_, bindparam, func, not_, or_, select

from volsched.log import tables
from volsched.log.dialects import Dialect, dialect_of
from volsched.log.events.fold import State
from volsched.log.reads.startup import StoredWorld, load_world
from volsched.log.row_states import object_state

_volumes, _claims, _legs, _attachments = tables.volumes, tables.claims, tables.binding_legs, tables.attachments

FREE = and_(
    _volumes.c.claim.is_(None),
    _volumes.c.assumed_binding.is_(None),
    not_(_volumes.c.deleting),
    _volumes.c.key.not_in(select(_claims.c.volume).where(_claims.c.volume.is_not(None))),
    _volumes.c.key.not_in(select(_attachments.c.volume).where(_attachments.c.volume.is_not(None))),
    _volumes.c.key.not_in(select(_legs.c.volume).where(_legs.c.open, _legs.c.volume.is_not(None))),
)
"""Nothing refers to the volume, and it refers to no claim."""
OWN = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "creationTimestamp"),
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
    ("spec", "capacity"),
    ("spec", "local", "path"),
    ("spec", "hostPath", "path"),
    ("spec", "nfs", "path"),
)
"""What is a volume's own and no rule reads, besides its name and its capacity. The handle of a disk is not among
it: two volumes of one disk take one attach slot."""


class VolumeOutline(Protocol):
    """A row as the database gives it: a second tuple for each of very many volumes would be felt."""

    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int | None:
        """In bytes, rounded up."""

    @property
    def capacity(self) -> str | None:
        """As it is written, as JSON."""

    @property
    def rest(self) -> str:
        """Everything else that two volumes may differ in."""


def free_count(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(_volumes).where(FREE)).scalar_one())


def free_volumes(
    connection: Connection, *, classes: Collection[str] | None = None, least: int = 0
) -> list[VolumeOutline]:
    """All free volumes, unordered; or those of some classes, of at least some size."""
    dialect = dialect_of(connection.engine)
    if classes is None:
        rows = dialect.run(connection, _outlines(dialect, among_classes=False))
    else:
        values = {"classes": dialect.named(classes), "least": least}
        rows = dialect.run(connection, _outlines(dialect, among_classes=True), values)
    return rows


@cache
def _outlines(dialect: Dialect, *, among_classes: bool) -> Select[Any]:
    query = select(
        _volumes.c.key,
        _volumes.c.capacity_bytes.label("size"),
        dialect.json_text(_volumes.c.manifest, ("spec", "capacity")).label("capacity"),
        dialect.json_without(_volumes.c.manifest, OWN).label("rest"),
    ).where(FREE)
    if not among_classes:
        return query
    size = _volumes.c.capacity_bytes
    return query.where(
        or_(dialect.among_named(_volumes.c.class_name, "classes"), _volumes.c.class_name.is_(None)),
        or_(size >= bindparam("least", type_=size.type), size.is_(None)),
    )


def load_but_free(connection: Connection) -> StoredWorld:
    """All objects and open bindings but the free volumes."""
    return load_world(connection, volumes=not_(FREE))


def load_volumes(connection: Connection, keys: Iterable[str]) -> dict[str, State]:
    """The streams and states of these volumes."""
    rows = dialect_of(connection.engine).fetch(connection, _volumes, "key", keys)
    return {f"volume/{row['key']}": object_state(row) for row in rows}
