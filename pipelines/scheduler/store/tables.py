"""Defines the scheduler's SQL tables.

Moments are ms since 1970 UTC, by the centres' clocks.

Texts of other people are kept as JSON strings in ASCII, like those of alerting.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from pipelines.database.tables import Escaped

metadata = MetaData()

AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_ID: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts up only what is called INTEGER."""

schedule_locks = Table("schedule_locks", metadata, Column("name", String(32), primary_key=True))
"""A row is locked by whoever plans; it says nothing."""

job_groups = Table(
    "job_groups",
    metadata,
    Column("group_id", _ID, primary_key=True, autoincrement=True),
    Column("app_name", String(64), nullable=False),
    Column("title", Escaped, nullable=False),
    Column("manual_addresses", Text),
    Column("access_token", Escaped),
    Column("changed_ms", BigInteger, nullable=False),
    UniqueConstraint("app_name", name="one_group_an_app"),
)
"""Executors that run the same handlers. `manual_addresses`: a JSON list, or NULL for those that
register themselves. `access_token`: their own, or NULL for the common one; it is sent to them, so
it is kept as it is."""

executors = Table(
    "executors",
    metadata,
    Column("app_name", String(64), primary_key=True),
    Column("address", String(255), primary_key=True),
    Column("seen_ms", BigInteger, nullable=False),
    Index("executors_by_beat", "seen_ms"),
)
"""Registered executors, and when they last said so."""

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", _ID, primary_key=True, autoincrement=True),
    Column("group_id", BigInteger, nullable=False),
    Column("title", Escaped, nullable=False),
    Column("author", Escaped, nullable=False),
    Column("schedule_kind", String(16), nullable=False),
    Column("schedule_text", String(128), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("misfire", String(16), nullable=False),
    Column("route", String(32), nullable=False),
    Column("handler", Escaped, nullable=False),
    Column("parameters", Escaped, nullable=False),
    Column("blocking", String(32), nullable=False),
    Column("timeout_s", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("children", Text, nullable=False),
    Column("glue_type", String(32), nullable=False),
    Column("glue_source", Escaped, nullable=False),
    Column("glue_changed_ms", BigInteger, nullable=False),
    Column("is_active", Boolean, nullable=False),
    Column("next_ms", BigInteger),
    Column("stopped_because", Escaped),
    Column("counters", Text, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index("jobs_by_next", "next_ms", "job_id"),
    Index("jobs_by_group", "group_id"),
)
"""`next_ms` is NULL for a job that is not active, or whose next time only the end of a run sets.
`children`: a JSON list of jobs that run after this one's success. `counters`: what routing
remembers."""

runs = Table(
    "runs",
    metadata,
    Column("log_id", _ID, primary_key=True, autoincrement=True),
    Column("job_id", BigInteger, nullable=False),
    Column("cause", String(64), nullable=False),
    Column("shard_index", Integer, nullable=False),
    Column("shard_total", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("retries_left", Integer, nullable=False),
    Column("parameters", Escaped),
    Column("planned_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("token", Integer, nullable=False),
    Column("holder", String(64), nullable=False),
    Column("claim_until_ms", BigInteger, nullable=False),
    Column("sendings", Integer, nullable=False),
    Column("address", String(255)),
    Column("sent_ms", BigInteger),
    Column("trigger_code", Integer),
    Column("trigger_message", Escaped),
    Column("ended_ms", BigInteger),
    Column("result_code", Integer),
    Column("result_message", Escaped),
    Column("late_code", Integer),
    Column("late_ms", BigInteger),
    Column("flow_id", BigInteger),
    Column("step", String(32)),
    UniqueConstraint("job_id", "cause", "shard_index", "attempt", name="one_run_a_cause"),
    Index("runs_by_state", "state", "due_ms"),
    Index("runs_by_job", "job_id", "log_id"),
    Index("runs_by_time", "planned_ms"),
    Index("runs_by_flow", "flow_id"),
)
"""A row is the claim on a planned trigger and the log of what came of it: see `run_life`.
`cause`: `plan:<planned_ms>`, `hand:<id>`, `after:<log_id>` of a parent, `flow:<log_id>:<step>`
of a workflow's run, which `flow_id` and `step` say again; `void:<log_id>` of one that was cancelled
before it was sent, and whose time was planned again. `parameters`: instead of the job's.
`late_code`: of a result that came after the run had counted as lost."""

flow_runs = Table(
    "flow_runs",
    metadata,
    Column("log_id", BigInteger, primary_key=True, autoincrement=False),
    Column("definition", Escaped, nullable=False),
)
"""The workflow as it was when its run began: a change of the job is for runs to come."""

job_imports = Table(
    "job_imports",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("their_id", BigInteger, primary_key=True, autoincrement=False),
    Column("our_id", BigInteger, nullable=False),
)
"""What of another database became what here: it is not taken over again."""

run_reports = Table(
    "run_reports",
    metadata,
    Column("day", String(10), primary_key=True),
    Column("open_count", Integer, nullable=False),
    Column("done_count", Integer, nullable=False),
    Column("failed_count", Integer, nullable=False),
)
"""How many runs of a UTC day stand where."""

glue_versions = Table(
    "glue_versions",
    metadata,
    Column("glue_id", _ID, primary_key=True, autoincrement=True),
    Column("job_id", BigInteger, nullable=False),
    Column("glue_type", String(32), nullable=False),
    Column("source", Escaped, nullable=False),
    Column("remark", Escaped, nullable=False),
    Column("author", Escaped, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index("glue_versions_by_job", "job_id", "glue_id"),
)

job_users = Table(
    "job_users",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("password_hash", String(255), nullable=False),
    Column("is_admin", Boolean, nullable=False),
    Column("group_ids", Text, nullable=False),
)
"""Users who may change jobs: an admin those of all groups, others those of the listed ones."""

page_sessions = Table(
    "page_sessions",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("standing", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index("page_sessions_by_name", "name", "seen_ms"),
)
"""Who has signed in to pages. `standing`: a digest of his row in `job_users` as it was then; once
that row is another, or gone, the session is over."""

job_audit = Table(
    "job_audit",
    metadata,
    Column("audit_id", _ID, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("author", Escaped, nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("detail", Escaped, nullable=False),
    Index("job_audit_by_subject", "subject", "audit_id"),
)
"""The audit: every change, with its author."""
