"""Kubernetes events by the name of their object: a failed binding reads the provisioner's last message

Revision: 0006
After: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_notices_about", "notices", ["about"])


def downgrade() -> None:
    op.drop_index("ix_notices_about", table_name="notices")
