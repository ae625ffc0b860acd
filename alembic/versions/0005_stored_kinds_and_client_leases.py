"""Kinds stored for external schedulers and controllers, and the leases of those clients

Revision: 0005
After: 0004
"""

import sqlalchemy as sa

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

VIEWS = ("services", "revisions", "disruption_budgets", "priority_classes")


def upgrade() -> None:
    for name in VIEWS:
        op.create_table(
            name,
            sa.Column("key", sa.Text(), nullable=False),
            sa.Column("uid", sa.Text(), nullable=False),
            sa.Column("rv", sa.BigInteger(), nullable=False),
            sa.Column("version", sa.BigInteger(), nullable=False),
            sa.Column("origin_rv", sa.Text(), nullable=True),
            sa.Column("manifest", sa.Text(), nullable=False),
            sa.PrimaryKeyConstraint("key", name=f"pk_{name}"),
        )
    op.create_table(
        "client_leases",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_client_leases"),
    )


def downgrade() -> None:
    op.drop_table("client_leases")
    for name in reversed(VIEWS):
        op.drop_table(name)
