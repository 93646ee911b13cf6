"""Creates the scheduler's tables: jobs, groups, executors, runs, glue, users and audit.

Written out, and not taken from the tables of today: a migration does not change with them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.BigInteger()
WORD = sa.String(32)


def upgrade() -> None:
    """Make them."""
    lock = op.create_table("schedule_locks", sa.Column("name", WORD, primary_key=True))
    op.bulk_insert(lock, [{"name": "schedule"}])
    _executors()
    _jobs()
    _runs()
    _people()


def _executors() -> None:
    op.create_table(
        "job_groups",
        sa.Column("group_id", ID, primary_key=True, autoincrement=True),
        sa.Column("app_name", sa.String(64), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("manual_addresses", sa.Text()),
        sa.Column("changed_ms", MOMENT, nullable=False),
        sa.UniqueConstraint("app_name", name="one_group_an_app"),
    )
    op.create_table(
        "executors",
        sa.Column("app_name", sa.String(64), primary_key=True),
        sa.Column("address", sa.String(255), primary_key=True),
        sa.Column("seen_ms", MOMENT, nullable=False),
    )
    op.create_index("executors_by_beat", "executors", ["seen_ms"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", ID, primary_key=True, autoincrement=True),
        sa.Column("group_id", sa.BigInteger(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("schedule_kind", sa.String(16), nullable=False),
        sa.Column("schedule_text", sa.String(128), nullable=False),
        sa.Column("zone", sa.String(64), nullable=False),
        sa.Column("misfire", sa.String(16), nullable=False),
        sa.Column("route", WORD, nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("blocking", WORD, nullable=False),
        sa.Column("timeout_s", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("children", sa.Text(), nullable=False),
        sa.Column("glue_type", WORD, nullable=False),
        sa.Column("glue_source", sa.Text(), nullable=False),
        sa.Column("glue_changed_ms", MOMENT, nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("next_ms", MOMENT),
        sa.Column("stopped_because", sa.Text()),
        sa.Column("counters", sa.Text(), nullable=False),
        sa.Column("changed_ms", MOMENT, nullable=False),
    )
    op.create_index("jobs_by_next", "jobs", ["next_ms", "job_id"])
    op.create_index("jobs_by_group", "jobs", ["group_id"])
    op.create_table(
        "glue_versions",
        sa.Column("glue_id", ID, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("glue_type", WORD, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("remark", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("changed_ms", MOMENT, nullable=False),
    )
    op.create_index("glue_versions_by_job", "glue_versions", ["job_id", "glue_id"])


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("log_id", ID, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(64), nullable=False),
        sa.Column("shard_index", sa.Integer(), nullable=False),
        sa.Column("shard_total", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retries_left", sa.Integer(), nullable=False),
        sa.Column("parameters", sa.Text()),
        sa.Column("planned_ms", MOMENT, nullable=False),
        sa.Column("due_ms", MOMENT, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("claim_until_ms", MOMENT, nullable=False),
        sa.Column("sendings", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(255)),
        sa.Column("sent_ms", MOMENT),
        sa.Column("trigger_code", sa.Integer()),
        sa.Column("trigger_message", sa.Text()),
        sa.Column("ended_ms", MOMENT),
        sa.Column("result_code", sa.Integer()),
        sa.Column("result_message", sa.Text()),
        sa.Column("late_code", sa.Integer()),
        sa.Column("late_ms", MOMENT),
        sa.UniqueConstraint("job_id", "cause", "shard_index", "attempt", name="one_run_a_cause"),
    )
    op.create_index("runs_by_state", "runs", ["state", "due_ms"])
    op.create_index("runs_by_job", "runs", ["job_id", "log_id"])
    op.create_index("runs_by_time", "runs", ["planned_ms"])
    op.create_table(
        "run_reports",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("open_count", sa.Integer(), nullable=False),
        sa.Column("done_count", sa.Integer(), nullable=False),
        sa.Column("failed_count", sa.Integer(), nullable=False),
    )


def _people() -> None:
    op.create_table(
        "job_users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("password_hash", sa.String(255), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("group_ids", sa.Text(), nullable=False),
    )
    op.create_table(
        "job_audit",
        sa.Column("audit_id", ID, primary_key=True, autoincrement=True),
        sa.Column("at_ms", MOMENT, nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("action", WORD, nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index("job_audit_by_subject", "job_audit", ["subject", "audit_id"])
