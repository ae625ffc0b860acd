"""A synthetic next revision of the tables, as an upgrade would bring it: it expands, and takes nothing away."""

from pathlib import Path

NEXT = "9999"
SCRIPT = '''"""What the next version adds: columns that may be empty, a table, an index."""

import sqlalchemy as sa

from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{after}", None, None


def upgrade() -> None:
    for table in ("volumes", "claims", "pods", "bindings", "binding_legs", "effects", "leases", "events"):
        op.add_column(table, sa.Column("of_the_next_version", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("with_a_default", sa.Integer(), nullable=False, server_default="7"))
    op.create_table("only_the_next_version_knows_it", sa.Column("id", sa.Integer(), primary_key=True))
    op.create_index("ix_next", "pods", ["of_the_next_version"])


def downgrade() -> None:
    raise NotImplementedError
'''


def write_next_revision(scripts: Path, *, after: str) -> None:
    (scripts / "versions" / f"{NEXT}_what_the_next_version_adds.py").write_text(SCRIPT.format(after=after))
