"""The session and length of a lease: it is over when its holder is gone, or did not renew it in time

The columns are empty in older rows and in those of older programs: such leases end by their end time alone.

Revision: 0007
After: 0006
"""

import sqlalchemy as sa

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

COLUMNS = {"leases": ("length", "session"), "effects": ("lease_length", "lease_session")}


def upgrade() -> None:
    for table, names in COLUMNS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for table, names in COLUMNS.items():
        with op.batch_alter_table(table, schema=None) as batch_op:
            for name in reversed(names):
                batch_op.drop_column(name)
