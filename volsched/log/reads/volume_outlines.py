"""Volumes in outline: most volumes of a large store differ in name, size and claim only, and few have to be read.

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
"""Nothing refers to the volume, and it refers to no claim."""
NEVER_ATTACHED = ("local", "hostPath", "nfs")
"""Sources of volumes that take no attach slot of a node."""
_SETTLED = and_(
    not_(_volumes.c.deleting),
    # A key of the manifest: in a text its quotes would be escaped.
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
"""The volume and its claim name each other, no binding is about them, and no node has a slot less for them."""
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
"""What is a volume's own and no rule reads, besides its name, capacity and node affinity. The handle of a disk is
not part of it: two volumes of one disk take one attach slot."""


OWN_OF_SETTLED = (*OWN, ("metadata", "annotations"), ("spec", "claimRef"))
"""The only annotation that rules read is the class, which is asked for apart; of the claim, that there is one."""


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
    def affinity(self) -> str | None:
        """The node affinity, as JSON."""

    @property
    def rest(self) -> str:
        """Everything else that two volumes may differ in."""


def free_volumes(
    connection: Connection, *, classes: Collection[str] | None = None, least: int = 0
) -> list[VolumeOutline]:
    """All free volumes, unordered; or those of some classes, of at least some size."""
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
    """All settled volumes, unordered, but those of some claims."""
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
    """All objects and open bindings but the free volumes, and the settled ones with their claims.

    Those of these claims are loaded; None: every settled one is.
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
