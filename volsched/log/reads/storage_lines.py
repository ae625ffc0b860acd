"""Nodes, volumes, claims and pods as one short row each: enough for an overview, without parsing manifests.

A manifest is a hundred times as long as the fields that an overview counts, and parsing it is most of the cost
of reading an object. The columns of the views and a few parts that the database extracts are enough, and plain
counts (`volume_counts`, `pod_counts`) are computed in the database. A past state is the present one except for the
objects that have changed since: only those are folded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    cast,
    func,
    literal_column,
    not_,
    null,
    or_,
    select,
    union_all,
)

from volsched.log import tables
from volsched.log.dialects import dialect_of
from volsched.log.events.fold import ObjectState
from volsched.log.reads.as_of import AsOf
from volsched.log.reads.views import StoreView
from volsched.log.rows import VIEWS, dig

AFFINITY = ("spec", "nodeAffinity", "required")
LABELS = ("metadata", "labels")
DATA_STATE = ("status", "dataState")
POD_VOLUMES = ("spec", "volumes")
LARGE = 2**43
"""Bytes; the sum of a million smaller volumes still fits a database integer."""

_nodes, _volumes, _claims, _pods = tables.nodes.c, tables.volumes.c, tables.claims.c, tables.pods.c
_observed = tables.observed_pods.c


class NodeLine(NamedTuple):
    key: str
    unschedulable: bool
    labels: str | None
    """The labels as JSON."""


class VolumeLine(NamedTuple):
    key: str
    phase: str | None
    class_name: str | None
    bytes: int | None
    claim: str | None
    rv: int
    assumed_binding: str | None
    assumed_patch: str | None
    assumed_rv: int | None
    affinity: str | None
    """The volume's required node affinity, as JSON."""
    labels: str | None


class VolumeCount(NamedTuple):
    """Volumes that no binding has assumed and that are alike."""

    phase: str | None
    class_name: str | None
    claimed: bool
    affinity: str | None
    labels: str | None
    volumes: int
    bytes: int
    requested: int
    """Bytes that their claims request."""


class ClaimLine(NamedTuple):
    key: str
    phase: str | None
    class_name: str | None
    bytes: int | None
    volume: str | None
    data: str | None


class PodLine(NamedTuple):
    key: str
    phase: str | None
    node: str | None
    deleting: bool
    volumes: str | None
    """The pod's volumes as JSON."""


Line = TypeVar("Line", NodeLine, VolumeLine, ClaimLine, PodLine)


LineOf = Callable[[str, ObjectState], Line]


@dataclass(frozen=True, slots=True)
class StorageLines:
    """The lines of the present or a past state, as the given view says; unordered."""

    connection: Connection
    view: StoreView

    def nodes(self) -> Iterator[NodeLine]:
        query = select(_nodes.key, _nodes.unschedulable, self._part(_nodes.manifest, LABELS))
        return self._lines("node", query, NodeLine, _node_line)

    def volumes(self) -> Iterator[VolumeLine]:
        return self._lines("volume", self._volume_columns(), VolumeLine, _volume_line)

    def claims(self) -> Iterator[ClaimLine]:
        return self._lines("claim", self._claim_columns(), ClaimLine, _claim_line)

    def pods(self) -> Iterator[PodLine]:
        yield from self._lines("pod", self._pod_columns(), PodLine, _pod_line)
        if not isinstance(self.view, AsOf):
            # Observed pods without claims have no history and no typed columns.
            phase, node, deleting = self._observed_parts()
            query = select(_observed.key, phase, node, deleting.is_not(None), null())
            yield from map(PodLine._make, self.connection.execute(query).fetchall())

    # For the present state only: counted in the database, or few rows of many.

    def volume_total(self) -> int:
        return self.connection.execute(select(func.count()).select_from(tables.volumes)).scalar_one()

    def volume_counts(self) -> Iterator[VolumeCount]:
        """All volumes but the `odd_volumes`."""
        alike = (
            _volumes.phase,
            _volumes.class_name,
            _volumes.claim.is_not(None),
            self._part(_volumes.manifest, AFFINITY),
            self._part(_volumes.manifest, LABELS),
        )
        query = (
            select(*alike, func.count(), _sum(_volumes.capacity_bytes), _sum(_claims.request_bytes))
            .select_from(tables.volumes.outerjoin(tables.claims, _claims.key == _volumes.claim))
            .where(_PLAIN)
            .group_by(*(literal_column(str(place)) for place in range(1, len(alike) + 1)))
        )
        return map(VolumeCount._make, self.connection.execute(query).fetchall())

    def odd_volumes(self) -> Iterator[VolumeLine]:
        """Volumes that a binding has assumed, and those too large to add up."""
        joined = tables.volumes.outerjoin(tables.claims, _claims.key == _volumes.claim)
        query = self._volume_columns().select_from(joined).where(not_(_PLAIN))
        return map(VolumeLine._make, self.connection.execute(query).fetchall())

    def volumes_with(self, affinities: set[str | None]) -> Iterator[VolumeLine]:
        """Volumes with one of these node affinities; None: volumes without any."""
        affinity = self._part(_volumes.manifest, AFFINITY)
        named = dialect_of(self.connection.engine).among(affinity, (it for it in affinities if it is not None))
        wanted = or_(named, affinity.is_(None)) if None in affinities else named
        return map(VolumeLine._make, self.connection.execute(self._volume_columns().where(wanted)).fetchall())

    def claims_named(self, keys: Iterable[str]) -> Iterator[ClaimLine]:
        wanted = dialect_of(self.connection.engine).among(_claims.key, keys)
        return map(ClaimLine._make, self.connection.execute(self._claim_columns().where(wanted)).fetchall())

    def claims_in(self, phase: str) -> Iterator[ClaimLine]:
        query = self._claim_columns().where(_claims.phase == phase)
        return map(ClaimLine._make, self.connection.execute(query).fetchall())

    def pod_counts(self, *, ended: Sequence[str]) -> Iterator[tuple[str | None, int]]:
        """Node → its number of pods in other phases than `ended`; None: pods without a node, not being deleted."""
        phase, node, deleting = self._observed_parts()
        for columns, gone in (
            ((_pods.phase, _pods.node), _pods.deleting),
            ((phase, node), deleting.is_not(None)),
        ):
            query = select(columns[1], func.count()).where(
                func.coalesce(columns[0], "").not_in(ended), or_(columns[1].is_not(None), not_(gone))
            )
            yield from map(tuple, self.connection.execute(query.group_by(columns[1])).fetchall())

    def pods_without_node(self, *, ended: Sequence[str], most: int) -> list[str]:
        """The first pods without a node, by name."""
        phase, node, deleting = self._observed_parts()
        own = select(_pods.key).where(
            func.coalesce(_pods.phase, "").not_in(ended), _pods.node.is_(None), not_(_pods.deleting)
        )
        beside = select(_observed.key).where(
            func.coalesce(phase, "").not_in(ended), node.is_(None), deleting.is_(None)
        )
        return list(self.connection.execute(union_all(own, beside).order_by("key").limit(most)).scalars())

    def pods_with_claims(self, nodes: set[str] | None) -> Iterator[PodLine]:
        """Pods on these nodes or without a node; None: on any node."""
        query = self._pod_columns()
        if nodes is not None:
            on_them = dialect_of(self.connection.engine).among(_pods.node, nodes)
            query = query.where(or_(_pods.node.is_(None), on_them))
        return map(PodLine._make, self.connection.execute(query).fetchall())

    def _volume_columns(self) -> Select[Any]:
        return select(
            _volumes.key,
            _volumes.phase,
            _volumes.class_name,
            _volumes.capacity_bytes,
            _volumes.claim,
            _volumes.rv,
            _volumes.assumed_binding,
            _volumes.assumed_patch,
            _volumes.assumed_rv,
            self._part(_volumes.manifest, AFFINITY),
            self._part(_volumes.manifest, LABELS),
        )

    def _claim_columns(self) -> Select[Any]:
        data = self._part(_claims.manifest, DATA_STATE)
        return select(_claims.key, _claims.phase, _claims.class_name, _claims.request_bytes, _claims.volume, data)

    def _pod_columns(self) -> Select[Any]:
        mounts = self._part(_pods.manifest, POD_VOLUMES)
        return select(_pods.key, _pods.phase, _pods.node, _pods.deleting, mounts)

    def _observed_parts(self) -> tuple[ColumnElement[Any], ColumnElement[Any], ColumnElement[Any]]:
        part = self._part
        phase, node = part(_observed.manifest, ("status", "phase")), part(_observed.manifest, ("spec", "nodeName"))
        return phase, node, part(_observed.manifest, ("metadata", "deletionTimestamp"))

    def _part(self, column: Column[str], path: Sequence[str]) -> ColumnElement[Any]:
        return dialect_of(self.connection.engine).json_text(column, path)

    def _lines(self, noun: str, query: Select[Any], type_: type[Line], line: LineOf[Line]) -> Iterator[Line]:
        changed = self.view.changed_since(noun) if isinstance(self.view, AsOf) else {}
        for row in self.connection.execute(query).fetchall():
            if row[0] not in changed:
                yield type_(*row)
        for key, state in changed.items():
            if isinstance(state, ObjectState) and state.manifest is not None:
                yield line(key, state)


_PLAIN = and_(
    _volumes.assumed_binding.is_(None),
    func.coalesce(_volumes.capacity_bytes, 0) < LARGE,
    func.coalesce(_claims.request_bytes, 0) < LARGE,
)


def _sum(column: ColumnElement[int | None]) -> ColumnElement[int]:
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


def _node_line(key: str, state: ObjectState) -> NodeLine:
    manifest, typed = state.manifest or {}, VIEWS["node"][1](state.manifest or {})
    return NodeLine(key=key, unschedulable=typed["unschedulable"], labels=_json(manifest, LABELS))


def _volume_line(key: str, state: ObjectState) -> VolumeLine:
    manifest, typed = state.manifest or {}, VIEWS["volume"][1](state.manifest or {})
    assumed = state.assumed
    return VolumeLine(
        key=key,
        phase=typed["phase"],
        class_name=typed["class_name"],
        bytes=typed["capacity_bytes"],
        claim=typed["claim"],
        rv=state.rv,
        assumed_binding=None if assumed is None else assumed.binding,
        assumed_patch=None if assumed is None else orjson.dumps(assumed.patch).decode(),
        assumed_rv=None if assumed is None else assumed.rv,
        affinity=_json(manifest, AFFINITY),
        labels=_json(manifest, LABELS),
    )


def _claim_line(key: str, state: ObjectState) -> ClaimLine:
    manifest, typed = state.manifest or {}, VIEWS["claim"][1](state.manifest or {})
    return ClaimLine(
        key=key,
        phase=typed["phase"],
        class_name=typed["class_name"],
        bytes=typed["request_bytes"],
        volume=typed["volume"],
        data=dig(manifest, *DATA_STATE),
    )


def _pod_line(key: str, state: ObjectState) -> PodLine:
    manifest, typed = state.manifest or {}, VIEWS["pod"][1](state.manifest or {})
    return PodLine(
        key=key,
        phase=typed["phase"],
        node=typed["node"],
        deleting=typed["deleting"],
        volumes=_json(manifest, POD_VOLUMES),
    )


def _json(manifest: Any, path: tuple[str, ...]) -> str | None:
    found = dig(manifest, *path)
    return None if found is None else orjson.dumps(found).decode()
