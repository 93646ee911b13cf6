"""Adds columns for an operation's command, process and last heartbeat."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them."""
    op.add_column("operations", sa.Column("command", sa.Text()))
    op.add_column("operations", sa.Column("author", sa.Text()))
    op.add_column("operations", sa.Column("host", sa.String(255)))
    op.add_column("operations", sa.Column("pid", sa.Integer()))
    op.add_column("operations", sa.Column("process", sa.String(64)))
    op.add_column("operations", sa.Column("seen_us", sa.BigInteger()))
    op.add_column("operations", sa.Column("said", sa.Text()))
