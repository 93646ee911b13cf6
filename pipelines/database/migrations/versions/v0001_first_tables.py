"""Creates the initial alerting tables.

They are leads, cursors, alerts, groups, silences, acks, operations, notices and receivers.

Written out, and not taken from the tables of today: a migration does not change with them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LAKE = sa.String(512)
NAME = sa.String(128)
DIGEST = sa.String(64)
WORD = sa.String(16)
MOMENT = sa.BigInteger()


def upgrade() -> None:
    """Make them."""
    _what_is_known()
    _what_people_said()
    _notices()


def _what_is_known() -> None:
    op.create_table(
        "leads",
        sa.Column("role", LAKE, primary_key=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_us", MOMENT, nullable=False),
    )
    op.create_table(
        "cursors",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("run", NAME, nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("clock", sa.Text(), nullable=False),
        sa.Column("taken_us", MOMENT, nullable=False),
    )
    op.create_table(
        "alerts",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("fingerprint", DIGEST, primary_key=True),
        sa.Column("state", WORD, nullable=False),
        sa.Column("resolved_at_us", MOMENT),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("alerts_by_state", "alerts", ["lake", "state", "resolved_at_us"])
    op.create_table(
        "alert_groups",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("receiver", NAME, primary_key=True),
        sa.Column("group_id", DIGEST, primary_key=True),
        sa.Column("group_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
    )


def _what_people_said() -> None:
    op.create_table(
        "silences",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("silence_id", DIGEST, primary_key=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("from_us", MOMENT, nullable=False),
        sa.Column("to_us", MOMENT, nullable=False),
        sa.Column("created_us", MOMENT, nullable=False),
        sa.Column("expired_us", MOMENT),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("silences_by_end", "silences", ["lake", "to_us"])
    op.create_table(
        "acks",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("fingerprint", DIGEST, primary_key=True),
        sa.Column("active_at_us", MOMENT, primary_key=True, autoincrement=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("acked_us", MOMENT, nullable=False),
    )
    op.create_table(
        "operations",
        sa.Column("operation_id", DIGEST, primary_key=True),
        sa.Column("kind", DIGEST, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("created_us", MOMENT, nullable=False),
        sa.Column("expires_us", MOMENT, nullable=False),
        sa.Column("ended_us", MOMENT),
        sa.Column("result", sa.Text()),
    )
    op.create_index("operations_by_state", "operations", ["state", "ended_us"])


def _notices() -> None:
    op.create_table(
        "notices",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("lake", LAKE, nullable=False),
        sa.Column("notice_id", NAME, nullable=False),
        sa.Column("receiver", NAME, nullable=False),
        sa.Column("group_id", DIGEST, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_us", MOMENT, nullable=False),
        sa.Column("created_us", MOMENT, nullable=False),
        sa.Column("ended_us", MOMENT),
        sa.Column("claim", DIGEST),
        sa.Column("last_error", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.UniqueConstraint("lake", "notice_id", name="one_of_each_notice"),
    )
    op.create_index("notices_by_receiver", "notices", ["lake", "receiver", "state", "seq"])
    op.create_index("notices_by_group", "notices", ["lake", "receiver", "group_id", "state"])
    op.create_index("notices_by_end", "notices", ["lake", "state", "ended_us"])
    op.create_table(
        "receivers",
        sa.Column("lake", LAKE, primary_key=True),
        sa.Column("receiver", NAME, primary_key=True),
        sa.Column("claim", DIGEST),
        sa.Column("claimed_until_us", MOMENT, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("rest_until_us", MOMENT, nullable=False),
        sa.Column("last_error", sa.Text()),
    )
