"""Adds tables that queue changes for the lake and record how many have been copied."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "histories",
        sa.Column("lake", sa.String(512), primary_key=True),
        sa.Column("history", sa.String(64), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("carried_seq", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "changes",
        sa.Column("lake", sa.String(512), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
