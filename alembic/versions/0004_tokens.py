"""Tokens of API callers, by their hashes

Revision: 0004
After: 0003
"""

import sqlalchemy as sa

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("namespaces", sa.Text(), nullable=True),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.Column("issued_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_tokens"),
        sa.UniqueConstraint("id", name="uq_tokens_id"),
    )


def downgrade() -> None:
    op.drop_table("tokens")
