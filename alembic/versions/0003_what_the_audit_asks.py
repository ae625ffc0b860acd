"""Audit queries: three indexes, and views of the log and the decisions for reports

Revision: 0003
After: 0002

SQLite recreates a table to change it, and refuses that while a view reads from it: a later migration that changes
one of these tables drops the views first and recreates them (`drop_views`, `make_views`).
"""

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

VIEWS = ("audit_changes", "audit_interventions", "audit_bindings", "audit_legs", "audit_attempts")


def upgrade() -> None:
    op.create_index(
        "ix_events_by_hand",
        "events",
        ["position"],
        sqlite_where=sa.text("substr(actor, 1, 4) = 'cli/'"),
        postgresql_where=sa.text("substr(actor, 1, 4) = 'cli/'::text"),
    )
    op.create_index("ix_bindings_planned_at", "bindings", ["planned_at", "node"])
    op.create_index(
        "ix_bindings_rolled_back",
        "bindings",
        ["planned_at"],
        sqlite_where=sa.text("state = 'rolled-back'"),
        postgresql_where=sa.text("state = 'rolled-back'::text"),
    )
    make_views()


def downgrade() -> None:
    drop_views()
    op.drop_index("ix_bindings_rolled_back", "bindings")
    op.drop_index("ix_bindings_planned_at", "bindings")
    op.drop_index("ix_events_by_hand", "events")


def drop_views() -> None:
    for name in reversed(VIEWS):
        op.execute(f"DROP VIEW {name}")


def make_views() -> None:
    postgres = op.get_bind().dialect.name == "postgresql"

    def time(column: str) -> str:
        """A timestamp with time zone; on SQLite, which has none, text of the form 2025-11-16T22:00:00.123Z."""
        if postgres:
            return f"to_timestamp({column} / 1000000.0)"
        return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000000.0, 'unixepoch')"

    def part(path: str) -> str:
        """A field of an event's data, as text."""
        return f"(e.data::jsonb ->> '{path}')" if postgres else f"json_extract(e.data, '$.{path}')"

    slash = "strpos(e.stream, '/')" if postgres else "instr(e.stream, '/')"
    changes = f"""
        SELECT e.position, {time("e.at")} AS at, substr(e.stream, 1, {slash} - 1) AS noun,
               substr(e.stream, {slash} + 1) AS name, e.version, e.type, e.actor, e.cause, e.binding,
               {part("reason")} AS reason, e.data
        FROM events e"""
    selects = {
        "audit_changes": changes,
        "audit_interventions": f"{changes} WHERE substr(e.actor, 1, 4) = 'cli/'",
        "audit_bindings": f"""
            SELECT b.id AS binding, b.pod, b.node, n.zone, b.state, b.open, b.reason, b.on_failure,
                   {time("b.planned_at")} AS planned_at, {time("b.ended_at")} AS ended_at,
                   (b.ended_at - b.planned_at) / 1000000.0 AS seconds, b.decided_at AS decided_at_position,
                   (SELECT count(*) FROM binding_legs l WHERE l.binding = b.id) AS legs
            FROM bindings b LEFT JOIN nodes n ON n.key = b.node""",
        "audit_legs": f"""
            SELECT l.binding, l.leg, l.claim, l.volume, l.dynamic, l.owner, l.state, l.reason,
                   coalesce(c.class_name, v.class_name) AS class_name, b.pod, b.node, n.zone,
                   b.state AS binding_state, {time("b.planned_at")} AS planned_at, {time("b.ended_at")} AS ended_at,
                   (b.ended_at - b.planned_at) / 1000000.0 AS seconds
            FROM binding_legs l JOIN bindings b ON b.id = l.binding
                 LEFT JOIN claims c ON c.key = l.claim
                 LEFT JOIN volumes v ON v.key = l.volume
                 LEFT JOIN nodes n ON n.key = b.node""",
        "audit_attempts": f"""
            SELECT a.id AS attempt, a.pod, a.outcome, a.node, {part("message").replace("e.data", "a.detail")} AS message,
                   {time("a.first_at")} AS first_at, {time("a.last_at")} AS last_at, a.count, a.decider,
                   a.decided_at AS decided_at_position, a.detail
            FROM attempts a""",
    }
    for name in VIEWS:
        # Colons are escaped, because SQLAlchemy would take those of %H:%M for parameters.
        op.execute(sa.text(f"CREATE VIEW {name} AS {selects[name]}".replace(":", r"\:")))
