"""Adds a table that records each rule's last evaluation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make it."""
    op.create_table(
        "judged_rules",
        sa.Column("lake", sa.String(512), primary_key=True),
        sa.Column("rule", sa.String(128), primary_key=True),
        sa.Column("judged_us", sa.BigInteger(), nullable=False),
        sa.Column("data_us", sa.BigInteger()),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("matched", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("sound_us", sa.BigInteger()),
    )
