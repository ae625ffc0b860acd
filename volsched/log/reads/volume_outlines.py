"""Volumes in outline: most volumes of a large store differ only in name, size and claim, and few are read in full.

For a decision about a pod, two kinds of volumes need not all be read: free ones, of which a few represent the
others, and settled ones, which are bound to a claim that the pod does not use and take no attach slot.
"""

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, exists, func, not_, or_, select

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
"""Condition: nothing refers to the volume, and it refers to no claim."""
NEVER_ATTACHED = ("local", "hostPath", "nfs")
"""Sources of volumes that take no attach slot of a node."""
_SETTLED = and_(
    not_(_volumes.c.deleting),
    # Matches only a key of the manifest: inside a string value the quotes would be escaped.
    or_(*(_volumes.c.manifest.contains(f'"{source}":{{', autoescape=True) for source in NEVER_ATTACHED)),
    exists(select(_claims.c.key)).where(
        _claims.c.key == _volumes.c.claim,
        _claims.c.uid == _volumes.c.claim_uid,
        _claims.c.volume == _volumes.c.key,
    ),
    _volumes.c.claim.not_in(select(_legs.c.claim).where(_legs.c.open)),
    _volumes.c.key.not_in(select(_attachments.c.volume).where(_attachments.c.volume.is_not(None))),
    _volumes.c.key.not_in(select(_legs.c.volume).where(_legs.c.open, _legs.c.volume.is_not(None))),
)
"""Condition: the volume and its claim name each other, no binding names them, and they take no attach slot."""
OWN = (
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "creationTimestamp"),
    ("metadata", "managedFields"),
    ("metadata", "resourceVersion"),
    ("spec", "capacity"),
    ("spec", "nodeAffinity"),
    ("spec", "local", "path"),
    ("spec", "hostPath", "path"),
    ("spec", "nfs", "path"),
)
"""Fields that differ between volumes and that no rule reads, and its name, capacity and node affinity. A disk's
handle is not among them: two volumes of one disk take one attach slot."""


OWN_OF_SETTLED = (*OWN, ("metadata", "annotations"), ("spec", "claimRef"))
"""The only annotation that rules read is the class, which is queried separately; they read only whether `claimRef`
exists."""


class VolumeOutline(Protocol):
    """A raw database row: converting each of very many volumes would cost noticeable time."""

    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int | None:
        """The capacity in bytes, rounded up."""

    @property
    def capacity(self) -> str | None:
        """The capacity as written, as JSON."""

    @property
    def affinity(self) -> str | None:
        """The node affinity, as JSON."""

    @property
    def rest(self) -> str:
        """Everything else that two volumes may differ in."""


def free_volumes(
    connection: Connection, *, classes: Collection[str] | None = None, least: int = 0
) -> list[VolumeOutline]:
    """All free volumes, unordered; or those of some classes and a minimum size."""
    dialect = dialect_of(connection.engine)
    if classes is None:
        rows = dialect.run(connection, _free(dialect, among_classes=False))
    else:
        values = {"classes": dialect.named(classes), "least": least}
        rows = dialect.run(connection, _free(dialect, among_classes=True), values)
    return rows


@cache
def _free(dialect: Dialect, *, among_classes: bool) -> Select[Any]:
    query = _outlines(dialect, dialect.json_without(_volumes.c.manifest, OWN)).where(FREE)
    if not among_classes:
        return query
    size = _volumes.c.capacity_bytes
    return query.where(
        or_(dialect.among_named(_volumes.c.class_name, "classes"), _volumes.c.class_name.is_(None)),
        or_(size >= bindparam("least", type_=size.type), size.is_(None)),
    )


def settled_volumes(connection: Connection, *, but_of: Collection[str]) -> list[VolumeOutline]:
    """All settled volumes, unordered, except those of some claims."""
    dialect = dialect_of(connection.engine)
    return dialect.run(connection, _settled_outlines(dialect), {"claims": dialect.named(but_of)})


@cache
def _settled_outlines(dialect: Dialect) -> Select[Any]:
    rest = func.coalesce(_volumes.c.class_name, "") + dialect.json_without(_volumes.c.manifest, OWN_OF_SETTLED)
    return _outlines(dialect, rest).where(_SETTLED, not_(dialect.among_named(_volumes.c.claim, "claims")))


def _outlines(dialect: Dialect, rest: ColumnElement[str]) -> Select[Any]:
    return select(
        _volumes.c.key,
        _volumes.c.capacity_bytes.label("size"),
        dialect.json_text(_volumes.c.manifest, ("spec", "capacity")).label("capacity"),
        dialect.json_text(_volumes.c.manifest, ("spec", "nodeAffinity")).label("affinity"),
        rest.label("rest"),
    )


def load_but_outlined(connection: Connection, *, claims: Collection[str] | None) -> StoredWorld:
    """All objects and open bindings except free volumes, and except settled volumes with their claims.

    Settled volumes of these claims are loaded; None: all settled ones are.
    """
    if claims is None:
        return load_world(connection, only={"volume": not_(FREE)})
    left_out = and_(_SETTLED, _volumes.c.claim.not_in(claims))
    only = {
        "volume": and_(not_(FREE), _volumes.c.key.not_in(select(_volumes.c.key).where(left_out))),
        "claim": _claims.c.key.not_in(select(_volumes.c.claim).where(left_out)),
    }
    return load_world(connection, only=only)


def load_volumes(connection: Connection, keys: Iterable[str]) -> dict[str, State]:
    """The streams and states of these volumes, and of the claims that they are bound to."""
    fetch = dialect_of(connection.engine).fetch
    volumes = fetch(connection, _volumes, "key", keys)
    names = [row["claim"] for row in volumes if row["claim"] is not None]
    claims = fetch(connection, _claims, "key", names) if names else ()
    return {
        f"{noun}/{row['key']}": object_state(row)
        for noun, rows in (("volume", volumes), ("claim", claims))
        for row in rows
    }
