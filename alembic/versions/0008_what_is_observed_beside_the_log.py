"""Tables of an observer beside the log: pods without claims, and the cursor of each kind

Revision: 0008
After: 0007
"""

import sqlalchemy as sa

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "observed_pods",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_observed_pods"),
    )
    op.create_table(
        "mirror_cursors",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", name="pk_mirror_cursors"),
    )


def downgrade() -> None:
    op.drop_table("mirror_cursors")
    op.drop_table("observed_pods")
