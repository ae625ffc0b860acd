"""What is said of an object is found by its name: a binding that fails asks what the provisioner said

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
