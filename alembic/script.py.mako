"""${message}

Revision: ${up_revision}
After: ${down_revision or "nothing" | comma,n}
"""

import sqlalchemy as sa

from alembic import op

revision = "${up_revision}"
down_revision = "${down_revision}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
