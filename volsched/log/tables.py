"""Every table of the store. Migrations must produce exactly these (a test compares them on both engines)."""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeDecorator

from volsched.log.phrases import unpacked


class EventData(TypeDecorator[str]):
    """A column whose stored text may be packed; every reader gets the whole text."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's
        # A damaged store may have anything here, and a check reports it.
        return unpacked(value) if isinstance(value, str) else value


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _maybe_text(name: str) -> Column[str]:
    return Column(name, Text)


def _big(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _maybe_big(name: str) -> Column[int]:
    return Column(name, BigInteger)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


log_head = Table(
    "log_head",
    metadata,
    # One row. The row lock on it makes positions dense and commit-ordered.
    Column("id", Integer, primary_key=True, autoincrement=False),
    _big("position"),
    Column("hash", LargeBinary, nullable=False),
    _big("at"),
    Column("min_reader", Integer, nullable=False),
    Column("min_writer", Integer, nullable=False),
)

BY_HAND = "substr(actor, 1, 4) IN ('api/', 'cert', 'cli/', 'toke')"
"""Actors that are people: at the command line, or over HTTP with a token, a certificate or on the same machine."""
events = Table(
    "events",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    _text("stream"),
    _big("version"),
    _text("type"),
    Column("schema", Integer, nullable=False),
    _big("at"),
    _text("actor"),
    _maybe_big("cause"),
    _maybe_text("binding"),
    Column("data", EventData, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    UniqueConstraint("stream", "version"),
    Index("ix_events_at", "at"),
    Index(
        "ix_events_cause",
        "cause",
        sqlite_where=text("cause IS NOT NULL"),
        postgresql_where=text("cause IS NOT NULL"),
    ),
    Index(
        "ix_events_binding",
        "binding",
        sqlite_where=text("binding IS NOT NULL"),
        postgresql_where=text("binding IS NOT NULL"),
    ),
    # Commands by people: few among a million, and read by audits.
    Index(
        "ix_events_by_people",
        "position",
        sqlite_where=text(BY_HAND),
        postgresql_where=text(
            "substr(actor, 1, 4) = ANY (ARRAY['api/'::text, 'cert'::text, 'cli/'::text, 'toke'::text])"
        ),
    ),
)


def _view(name: str, *columns: Column[str] | Column[int] | Column[bool], assumable: bool = False) -> Table:
    """One row per object: typed columns for queries, the whole manifest, and its version in its stream.

    `assumable` adds the overlay: a patch that applies while `assumed_rv` equals `rv`.
    """
    overlay = (_maybe_text("assumed_binding"), _maybe_text("assumed_patch"), _maybe_big("assumed_rv"))
    return Table(
        name,
        metadata,
        Column("key", Text, primary_key=True),
        _text("uid"),
        _big("rv"),
        _big("version"),
        _maybe_text("origin_rv"),
        _text("manifest"),
        *columns,
        *(overlay if assumable else ()),
    )


nodes = _view("nodes", _maybe_text("zone"), _flag("unschedulable"))
namespaces = _view("namespaces")
classes = _view("classes", _maybe_text("provisioner"), _maybe_text("binding_mode"))
volumes = _view(
    "volumes",
    _maybe_text("phase"),
    _maybe_text("class_name"),
    _maybe_big("capacity_bytes"),
    _maybe_text("claim"),
    _maybe_text("claim_uid"),
    _flag("deleting"),
    assumable=True,
)
claims = _view(
    "claims",
    _maybe_text("phase"),
    _maybe_text("class_name"),
    _maybe_big("request_bytes"),
    _maybe_text("volume"),
    _maybe_text("selected_node"),
    _flag("deleting"),
    assumable=True,
)
pods = _view(
    "pods",
    _maybe_text("phase"),
    _maybe_text("node"),
    _maybe_text("scheduler"),
    _flag("deleting"),
    assumable=True,
)
drivers = _view("drivers")
csi_nodes = _view("csi_nodes")
capacities = _view("capacities", _maybe_text("class_name"), _maybe_big("capacity_bytes"))
attachments = _view("attachments", _maybe_text("node"), _maybe_text("attacher"), _maybe_text("volume"))
notices = _view("notices", _maybe_text("about"), _maybe_text("type"), _maybe_text("reason"))
Index("ix_notices_about", notices.c.about)
stateful_sets = _view("stateful_sets")
services = _view("services")
revisions = _view("revisions")
disruption_budgets = _view("disruption_budgets")
priority_classes = _view("priority_classes")

bindings = Table(
    "bindings",
    metadata,
    Column("id", Text, primary_key=True),
    _big("version"),
    _text("pod"),
    _text("pod_uid"),
    _text("node"),
    _text("state"),
    _flag("open"),
    _maybe_text("reason"),
    _text("on_failure"),
    _big("decided_at"),
    _big("planned_at"),
    _maybe_big("deadline"),
    _maybe_big("ended_at"),
    Index("ix_bindings_open", "open", sqlite_where=text("open"), postgresql_where=text("open")),
    # A pod has one open binding at a time, whatever two schedulers believe.
    Index("uq_bindings_open_pod", "pod", unique=True, sqlite_where=text("open"), postgresql_where=text("open")),
    Index("ix_bindings_pod", "pod"),
    # By time, then by node without reading the rows. It grows only at its end, which costs next to nothing; an
    # index by node first would grow everywhere.
    Index("ix_bindings_planned_at", "planned_at", "node"),
    Index(
        "ix_bindings_rolled_back",
        "planned_at",
        sqlite_where=text("state = 'rolled-back'"),
        postgresql_where=text("state = 'rolled-back'::text"),
    ),
)

# SQLite uses a partial index only where a query has its condition word for word: queries take it from here.
OPEN_OWNER = text("open AND owner")
OPEN_STATIC = text("open AND owner AND NOT dynamic")
OPEN_JOINED = text("open AND NOT owner")
binding_legs = Table(
    "binding_legs",
    metadata,
    _text("binding"),
    Column("leg", Integer, nullable=False),
    _text("claim"),
    _maybe_text("volume"),
    _flag("owner"),
    _flag("open"),
    _text("state"),
    _maybe_text("reason"),
    Column("claim_uid", Text, nullable=False, server_default=text("''")),
    Column("dynamic", Boolean, nullable=False, server_default=text("false")),
    Column("rv", Text, nullable=False, server_default=text("''")),
    _maybe_text("written_rv"),
    _maybe_text("joins"),
    _maybe_text("capacity"),
    _maybe_big("bytes"),
    PrimaryKeyConstraint("binding", "leg"),
    # A volume, and a claim, is in at most one open owner leg: the database itself refuses a double booking. For
    # planned volumes only: a provisioner's choice for a claim is a fact, and cannot be refused.
    Index(
        "uq_binding_legs_open_volume",
        "volume",
        unique=True,
        sqlite_where=OPEN_STATIC,
        postgresql_where=OPEN_STATIC,
    ),
    Index(
        "uq_binding_legs_open_claim", "claim", unique=True, sqlite_where=OPEN_OWNER, postgresql_where=OPEN_OWNER
    ),
    # Legs that wait for a claim of another binding: few, so the indexes cost next to nothing.
    Index("ix_binding_legs_joined_claim", "claim", sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED),
    Index("ix_binding_legs_joins", "joins", sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),
    _big("version"),
    _text("pod"),
    _text("pod_uid"),
    _text("outcome"),
    _maybe_text("node"),
    _text("detail"),
    _big("decided_at"),
    _text("decider"),
    _big("first_at"),
    _big("last_at"),
    _big("count"),
    Index("ix_attempts_pod", "pod", "last_at"),
)

effects = Table(
    "effects",
    metadata,
    Column("key", Text, primary_key=True),
    _text("lane"),
    _text("queue"),
    _text("kind"),
    _maybe_text("binding"),
    _text("data"),
    _big("position"),
    # Order among effects of one position; so a lane always has exactly one first effect.
    Column("seq", Integer, nullable=False),
    _big("due"),
    _text("state"),
    _maybe_text("lease_owner"),
    _maybe_big("lease_until"),
    _big("fence"),
    Column("attempts", Integer, nullable=False),
    _maybe_text("error"),
    _maybe_big("lease_length"),
    _maybe_big("lease_session"),
    # Exactly the order in which effects are claimed, so that a claim reads a batch and not the backlog. With a
    # second index of the same prefix, PostgreSQL's planner might sort the backlog instead.
    Index("ix_effects_claim", "queue", "state", "due", "position", "seq"),
    UniqueConstraint("lane", "position", "seq"),
)

effects_done = Table(
    "effects_done",
    metadata,
    Column("key", Text, primary_key=True),
    _text("lane"),
    _text("queue"),
    _text("kind"),
    _maybe_text("binding"),
    _text("data"),
    _text("outcome"),
    Column("attempts", Integer, nullable=False),
    _big("done_at"),
    Index("ix_effects_done_binding", "binding"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    _text("holder"),
    _big("epoch"),
    _big("until"),
    # Empty where an older program wrote the row.
    _maybe_big("length"),
    _maybe_big("session"),
)

client_leases = Table(
    "client_leases",
    metadata,
    # The Lease objects of clients that elect a leader. Beside the log: each is written every two seconds.
    Column("key", Text, primary_key=True),
    _big("rv"),
    _text("manifest"),
)

observed_pods = Table(
    "observed_pods",
    metadata,
    # Pods of an observed cluster as they are now. Pods without claims are only here: they would be most of the
    # log's events. The log has all data of the others except their readiness.
    Column("key", Text, primary_key=True),
    _text("manifest"),
)

mirror_cursors = Table(
    "mirror_cursors",
    metadata,
    # The cursor of each kind of an observed cluster, and the time of the last report on it.
    Column("kind", Text, primary_key=True),
    _big("cursor"),
    _big("heard_at"),
)

commands = Table(
    "commands",
    metadata,
    Column("key", Text, primary_key=True),
    _big("position"),
    _big("at"),
    _text("result"),
)

snapshots = Table(
    "snapshots",
    metadata,
    _text("stream"),
    _big("version"),
    _big("position"),
    _text("state"),
    PrimaryKeyConstraint("stream", "version"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("name", Text, primary_key=True),
    _big("position"),
    Column("hash", LargeBinary, nullable=False),
    _big("at"),
)

tokens = Table(
    "tokens",
    metadata,
    # One row per name: a new token replaces one that can no longer be used. The log has them all.
    Column("name", Text, primary_key=True),
    # Public: the lookup key of a token. Only what follows it in a token is secret.
    _text("id"),
    Column("hash", LargeBinary, nullable=False),
    _text("roles"),
    _maybe_text("namespaces"),
    _big("issued_at"),
    _text("issued_by"),
    _maybe_big("expires_at"),
    _maybe_big("revoked_at"),
    UniqueConstraint("id"),
)


# Columns by name, never `*`: during an upgrade, tables have columns that this program does not know.
#
# A prepared statement of PostgreSQL fails for good once its `*` would mean something else.

HEAD = "id, position, hash, at, min_reader, min_writer"


@cache
def all_columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)
