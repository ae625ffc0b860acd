"""Columns and indexes for carrying out, resuming and joining legs

Revision: 0002
After: 0001
"""

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OPEN = sa.text("open")
OPEN_OWNER = sa.text("open AND owner")
OPEN_STATIC = sa.text("open AND owner AND NOT dynamic")
OPEN_JOINED = sa.text("open AND NOT owner")


def upgrade() -> None:
    with op.batch_alter_table("binding_legs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("claim_uid", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("dynamic", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("rv", sa.Text(), server_default=sa.text("''"), nullable=False))
        batch_op.add_column(sa.Column("written_rv", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("joins", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("capacity", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("bytes", sa.BigInteger(), nullable=True))
        batch_op.create_index(
            "ix_binding_legs_joined_claim", ["claim"], sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED
        )
        batch_op.create_index(
            "ix_binding_legs_joins", ["joins"], sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED
        )
    # The values that the fold derives from existing plans; a leg ends with its binding.
    op.execute(sa.text("UPDATE binding_legs SET dynamic = true WHERE volume IS NULL"))
    op.execute(sa.text("UPDATE binding_legs SET state = 'joined' WHERE NOT owner AND state = 'assumed'"))
    op.execute(
        sa.text("UPDATE binding_legs SET open = false WHERE binding IN (SELECT id FROM bindings WHERE NOT open)")
    )
    op.drop_index(
        "uq_binding_legs_open_volume", "binding_legs", sqlite_where=OPEN_OWNER, postgresql_where=OPEN_OWNER
    )
    op.create_index(
        "uq_binding_legs_open_volume",
        "binding_legs",
        ["volume"],
        unique=True,
        sqlite_where=OPEN_STATIC,
        postgresql_where=OPEN_STATIC,
    )
    op.create_index(
        "uq_bindings_open_pod", "bindings", ["pod"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN
    )


def downgrade() -> None:
    op.drop_index(
        "uq_binding_legs_open_volume", "binding_legs", sqlite_where=OPEN_STATIC, postgresql_where=OPEN_STATIC
    )
    op.create_index(
        "uq_binding_legs_open_volume",
        "binding_legs",
        ["volume"],
        unique=True,
        sqlite_where=OPEN_OWNER,
        postgresql_where=OPEN_OWNER,
    )
    op.drop_index("uq_bindings_open_pod", "bindings", sqlite_where=OPEN, postgresql_where=OPEN)
    with op.batch_alter_table("binding_legs", schema=None) as batch_op:
        batch_op.drop_index("ix_binding_legs_joins", sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED)
        batch_op.drop_index("ix_binding_legs_joined_claim", sqlite_where=OPEN_JOINED, postgresql_where=OPEN_JOINED)
        for column in ("bytes", "capacity", "joins", "written_rv", "rv", "dynamic", "claim_uid"):
            batch_op.drop_column(column)
