"""Adds tables for workflow runs and their steps, group access tokens and past imports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them."""
    op.add_column("runs", sa.Column("flow_id", sa.BigInteger()))
    op.add_column("runs", sa.Column("step", sa.String(32)))
    op.create_index("runs_by_flow", "runs", ["flow_id"])
    op.create_table(
        "flow_runs",
        sa.Column("log_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("definition", sa.Text(), nullable=False),
    )
    op.add_column("job_groups", sa.Column("access_token", sa.Text()))
    op.create_table(
        "job_imports",
        sa.Column("source", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("their_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("our_id", sa.BigInteger(), nullable=False),
    )
