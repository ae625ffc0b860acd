"""Actions of people over HTTP are interventions: the index and the view of interventions include them

Revision: 0009
After: 0008
"""

import sqlalchemy as sa

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BY_HAND = "substr(actor, 1, 4) IN ('api/', 'cert', 'cli/', 'toke')"
ONLY_HERE = "substr(actor, 1, 4) = 'cli/'"


def upgrade() -> None:
    op.drop_index("ix_events_by_hand", "events")
    op.create_index(
        "ix_events_by_people",
        "events",
        ["position"],
        sqlite_where=sa.text(BY_HAND),
        postgresql_where=sa.text(BY_HAND),
    )
    _make_view(BY_HAND)


def downgrade() -> None:
    _make_view(ONLY_HERE)
    op.drop_index("ix_events_by_people", "events")
    op.create_index(
        "ix_events_by_hand",
        "events",
        ["position"],
        sqlite_where=sa.text(ONLY_HERE),
        postgresql_where=sa.text(f"{ONLY_HERE}::text"),
    )


def _make_view(condition: str) -> None:
    op.execute("DROP VIEW audit_interventions")
    op.execute(f"CREATE VIEW audit_interventions AS SELECT * FROM audit_changes WHERE {condition}")
