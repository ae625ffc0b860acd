"""The log, its views and the effects queue

Revision: 0001
After:
"""

import sqlalchemy as sa

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attachments",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("attacher", sa.Text(), nullable=True),
        sa.Column("volume", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_attachments")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.Column("decider", sa.Text(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index("ix_attempts_pod", ["pod", "last_at"], unique=False)

    op.create_table(
        "binding_legs",
        sa.Column("binding", sa.Text(), nullable=False),
        sa.Column("leg", sa.Integer(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("volume", sa.Text(), nullable=True),
        sa.Column("owner", sa.Boolean(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("binding", "leg", name=op.f("pk_binding_legs")),
    )
    with op.batch_alter_table("binding_legs", schema=None) as batch_op:
        batch_op.create_index(
            "uq_binding_legs_open_claim",
            ["claim"],
            unique=True,
            sqlite_where=sa.text("open AND owner"),
            postgresql_where=sa.text("open AND owner"),
        )
        batch_op.create_index(
            "uq_binding_legs_open_volume",
            ["volume"],
            unique=True,
            sqlite_where=sa.text("open AND owner"),
            postgresql_where=sa.text("open AND owner"),
        )

    op.create_table(
        "bindings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("pod", sa.Text(), nullable=False),
        sa.Column("pod_uid", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("on_failure", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.Column("planned_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bindings")),
    )
    with op.batch_alter_table("bindings", schema=None) as batch_op:
        batch_op.create_index(
            "ix_bindings_open",
            ["open"],
            unique=False,
            sqlite_where=sa.text("open"),
            postgresql_where=sa.text("open"),
        )
        batch_op.create_index("ix_bindings_pod", ["pod"], unique=False)

    op.create_table(
        "capacities",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("class_name", sa.Text(), nullable=True),
        sa.Column("capacity_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_capacities")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "claims",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("class_name", sa.Text(), nullable=True),
        sa.Column("request_bytes", sa.BigInteger(), nullable=True),
        sa.Column("volume", sa.Text(), nullable=True),
        sa.Column("selected_node", sa.Text(), nullable=True),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("assumed_binding", sa.Text(), nullable=True),
        sa.Column("assumed_patch", sa.Text(), nullable=True),
        sa.Column("assumed_rv", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_claims")),
    )
    op.create_table(
        "classes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("provisioner", sa.Text(), nullable=True),
        sa.Column("binding_mode", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_classes")),
    )
    op.create_table(
        "commands",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_commands")),
    )
    op.create_table(
        "csi_nodes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_csi_nodes")),
    )
    op.create_table(
        "drivers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_drivers")),
    )
    op.create_table(
        "effects",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("binding", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_effects")),
        sa.UniqueConstraint("lane", "position", "seq", name=op.f("uq_effects_lane_position_seq")),
    )
    with op.batch_alter_table("effects", schema=None) as batch_op:
        batch_op.create_index("ix_effects_claim", ["queue", "state", "due", "position", "seq"], unique=False)

    op.create_table(
        "effects_done",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("binding", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_effects_done")),
    )
    with op.batch_alter_table("effects_done", schema=None) as batch_op:
        batch_op.create_index("ix_effects_done_binding", ["binding"], unique=False)

    op.create_table(
        "events",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("schema", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("cause", sa.BigInteger(), nullable=True),
        sa.Column("binding", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_events")),
        sa.UniqueConstraint("stream", "version", name=op.f("uq_events_stream_version")),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_at", ["at"], unique=False)
        batch_op.create_index(
            "ix_events_binding",
            ["binding"],
            unique=False,
            sqlite_where=sa.text("binding IS NOT NULL"),
            postgresql_where=sa.text("binding IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_events_cause",
            ["cause"],
            unique=False,
            sqlite_where=sa.text("cause IS NOT NULL"),
            postgresql_where=sa.text("cause IS NOT NULL"),
        )

    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "log_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("min_reader", sa.Integer(), nullable=False),
        sa.Column("min_writer", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_head")),
    )
    op.create_table(
        "namespaces",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_namespaces")),
    )
    op.create_table(
        "nodes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("unschedulable", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_nodes")),
    )
    op.create_table(
        "notices",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("about", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_notices")),
    )
    op.create_table(
        "pods",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("scheduler", sa.Text(), nullable=True),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("assumed_binding", sa.Text(), nullable=True),
        sa.Column("assumed_patch", sa.Text(), nullable=True),
        sa.Column("assumed_rv", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_pods")),
    )
    op.create_table(
        "snapshots",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "version", name=op.f("pk_snapshots")),
    )
    op.create_table(
        "stateful_sets",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_stateful_sets")),
    )
    op.create_table(
        "volumes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("origin_rv", sa.Text(), nullable=True),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("class_name", sa.Text(), nullable=True),
        sa.Column("capacity_bytes", sa.BigInteger(), nullable=True),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claim_uid", sa.Text(), nullable=True),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("assumed_binding", sa.Text(), nullable=True),
        sa.Column("assumed_patch", sa.Text(), nullable=True),
        sa.Column("assumed_rv", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_volumes")),
    )
    op.execute(
        sa.table(
            "log_head",
            *(sa.column(name) for name in ("id", "position", "hash", "at", "min_reader", "min_writer")),
        )
        .insert()
        .values(id=1, position=0, hash=sa.literal(bytes(32), sa.LargeBinary()), at=0, min_reader=1, min_writer=1)
    )


def downgrade() -> None:
    op.drop_table("volumes")
    op.drop_table("stateful_sets")
    op.drop_table("snapshots")
    op.drop_table("pods")
    op.drop_table("notices")
    op.drop_table("nodes")
    op.drop_table("namespaces")
    op.drop_table("log_head")
    op.drop_table("leases")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_events_cause",
            sqlite_where=sa.text("cause IS NOT NULL"),
            postgresql_where=sa.text("cause IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_events_binding",
            sqlite_where=sa.text("binding IS NOT NULL"),
            postgresql_where=sa.text("binding IS NOT NULL"),
        )
        batch_op.drop_index("ix_events_at")

    op.drop_table("events")
    with op.batch_alter_table("effects_done", schema=None) as batch_op:
        batch_op.drop_index("ix_effects_done_binding")

    op.drop_table("effects_done")
    with op.batch_alter_table("effects", schema=None) as batch_op:
        batch_op.drop_index("ix_effects_claim")

    op.drop_table("effects")
    op.drop_table("drivers")
    op.drop_table("csi_nodes")
    op.drop_table("commands")
    op.drop_table("classes")
    op.drop_table("claims")
    op.drop_table("checkpoints")
    op.drop_table("capacities")
    with op.batch_alter_table("bindings", schema=None) as batch_op:
        batch_op.drop_index("ix_bindings_pod")
        batch_op.drop_index("ix_bindings_open", sqlite_where=sa.text("open"), postgresql_where=sa.text("open"))

    op.drop_table("bindings")
    with op.batch_alter_table("binding_legs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_binding_legs_open_volume",
            sqlite_where=sa.text("open AND owner"),
            postgresql_where=sa.text("open AND owner"),
        )
        batch_op.drop_index(
            "uq_binding_legs_open_claim",
            sqlite_where=sa.text("open AND owner"),
            postgresql_where=sa.text("open AND owner"),
        )

    op.drop_table("binding_legs")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index("ix_attempts_pod")

    op.drop_table("attempts")
    op.drop_table("attachments")
