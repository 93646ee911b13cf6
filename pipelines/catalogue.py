"""The gold tables: every answer the platform gives, declared once, as names, types and meanings.

Place in the walk: marts write these tables, expectations check them, dashboards, notebooks and
the demo's verdict read them. Bronze tables are declared in `engine.telemetry.tables`.

Invariant: every row names `observed_at`, a moment of data time (the broker's clock), never the
wall clock of the job; an unknown value is null and the reason column beside it says why. Interval
tables are append-only revisions: the newest revision of a `window_id` is its present truth, an
older one is what was known then.

Absent on purpose: Spark. The types are the vocabulary of `engine.telemetry.tables`.
"""

from __future__ import annotations

from typing import Final

from engine.telemetry.tables import Column, ColumnType, must
from pipelines.marts.columns import BROKER as _BROKER
from pipelines.marts.columns import CLUSTER as _CLUSTER
from pipelines.marts.columns import EMITTER as _EMITTER
from pipelines.marts.columns import GROUP as _GROUP
from pipelines.marts.columns import INTERVAL as _INTERVAL
from pipelines.marts.columns import OBSERVED_AT as _OBSERVED_AT
from pipelines.marts.columns import OBSERVED_DATE as _OBSERVED_DATE
from pipelines.marts.columns import QUEUE as _QUEUE
from pipelines.marts.columns import SEQ as _SEQ
from pipelines.marts.columns import TOPIC as _TOPIC
from pipelines.marts.dead_letters import DEAD_LETTERS
from pipelines.marts.duplicate_risk_windows import DUPLICATE_RISK_WINDOWS
from pipelines.marts.emitter_health import EMITTER_HEALTH
from pipelines.marts.mart import GoldTable
from pipelines.marts.offset_violations import OFFSET_VIOLATIONS
from pipelines.marts.ownership import OWNERSHIP
from pipelines.marts.rebalances import REBALANCES

__all__ = [
    "BY_NAME",
    "CONSUMER_LAG",
    "DEAD_LETTERS",
    "DELTA_RS_TABLES",
    "DQ_FAILURES",
    "DQ_RESULTS",
    "DUPLICATE_RISK_WINDOWS",
    "EMITTER_HEALTH",
    "GOLD_FOLDER",
    "GOLD_TABLES",
    "GROUP_STATE",
    "OFFSET_VIOLATIONS",
    "OWNERSHIP",
    "REBALANCES",
    "STALLED_WINDOWS",
    "STATE_FOLDER",
]

_S, _I, _L, _B, _T, _D = (
    ColumnType.STRING,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.BOOLEAN,
    ColumnType.TIMESTAMP,
    ColumnType.DATE,
)


CONSUMER_LAG: Final = GoldTable(
    "consumer_lag",
    "group, topic, broker, queue and grid second at which something changed (at least each 30 s)",
    (
        _OBSERVED_AT,
        _CLUSTER,
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        Column(
            "lag_messages",
            _L,
            "max_offset - committed; negative when the log lost messages; null when unknown",
        ),
        Column(
            "time_lag_ms",
            _L,
            "event time minus store time of the message AT committed; 0 when nothing waits",
        ),
        Column("time_lag_error_ms", _L, "half-width of the error bar of time_lag_ms; 0 when EXACT"),
        must(
            "provenance",
            _S,
            "EXACT, UNREADABLE (nobody may read the queue), INTERPOLATED, EXTRAPOLATED, PURGED or "
            "UNKNOWN",
        ),
        Column(
            "unknown_reason", _S, "why lag or time lag is null: NO_OFFSET, BROADCAST, PURGED, ..."
        ),
        Column("inflight_messages", _L, "pulled - committed; null when nobody has pulled"),
        Column("committed", _L, "consume offset in broker memory (NEXT to consume)"),
        Column("persisted", _L, "consume offset in the broker's file"),
        Column("pulled", _L, "next offset nobody of the group has pulled"),
        Column("processed", _L, "one past the highest finished offset, as clients told"),
        must("min_offset", _L, "first message kept"),
        must("max_offset", _L, "next offset to be written"),
        Column(
            "trend", _S, "GROWING, STEADY or SHRINKING over the last minute; null when too few rows"
        ),
        Column(
            "lag_change_per_minute",
            _L,
            "messages a minute by which lag_messages changes; null as trend",
        ),
        Column("drain_time_ms", _L, "time until lag 0 at the present rate; null unless SHRINKING"),
        Column("last_commit_time", _T, "when the group last reported an offset"),
        Column("last_pull_time", _T, "when the group last pulled"),
        Column("last_puller", _S, "client that pulled last"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("cluster", "broker", "group", "topic", "queue_id", "observed_at", "seq"),
)
STALLED_WINDOWS: Final = GoldTable(
    "stalled_windows",
    "revision of an interval in which a queue's consumption was not OK",
    (
        *_INTERVAL,
        _CLUSTER,
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("rule", _S, "NO_OFFSET, DATA_LOST, STOPPED, REWOUND, STALLED or SLOW"),
        must(
            "kind",
            _S,
            "FROZEN_HEAD, DEAD_QUEUE, DEAD_CONSUMER, BLOCKED_ORDERLY, PAUSED or UNDETERMINED",
        ),
        must("window_ms", _L, "length of the evaluation window"),
        must("slide_ms", _L, "distance of evaluation ticks"),
        Column("committed_from", _L, "consume offset at the window's start"),
        Column("committed_to", _L, "consume offset at its end"),
        Column("pulled_from", _L, "pulled mark at the window's start"),
        Column("pulled_to", _L, "pulled mark at its end"),
        Column("max_offset_from", _L, "max offset at the window's start"),
        Column("max_offset_to", _L, "max offset at its end"),
        Column("lag_messages", _L, "lag at observed_at"),
        Column("time_lag_ms", _L, "time lag at observed_at"),
        must("reports", _L, "offset reports inside the window, unchanged ones included"),
        Column("client_id", _S, "client that held the queue last"),
        Column("head_message_id", _S, "message at the head of that client's window, when told"),
        Column("head_since", _T, "since when it is in a listener"),
        Column("stack", _S, "stack of that listener, when told"),
        must("evidence", _S, "one sentence with the figures that fired the rule"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("window_id", "revision"),
    revised=True,
)
GROUP_STATE: Final = GoldTable(
    "group_state",
    "group, broker and evaluation tick at which its state changed (at least each 30 s)",
    (
        _OBSERVED_AT,
        _CLUSTER,
        _BROKER,
        _GROUP,
        must(
            "state",
            _S,
            "worst queue: OK, SLOW, STALLED, STOPPED, REWOUND, NO_OFFSET, DATA_LOST, BROADCAST or "
            "UNKNOWN",
        ),
        must("reason", _S, "the state in words, naming queue and figures"),
        Column("lag_messages", _L, "sum over queues whose lag is known; null when none is"),
        Column("time_lag_ms", _L, "largest over queues whose time lag is known; null when none is"),
        must("queues", _I, "queues of the group on this broker"),
        must("queues_known", _I, "of these, queues whose lag is known"),
        must("queues_not_ok", _I, "of these, queues whose state is not OK"),
        Column("members", _I, "clients of the group; null when not told"),
        Column("trend", _S, "GROWING, STEADY or SHRINKING of the summed lag"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("cluster", "broker", "group", "observed_at"),
)
DQ_RESULTS: Final = GoldTable(
    "dq_results",
    "expectation and run",
    (
        _OBSERVED_AT,
        must("run_id", _S, "one run of a suite"),
        must("suite", _S, "suite"),
        must("expectation", _S, "name of the check"),
        must("table", _S, "gold or bronze table it governs"),
        must("severity", _S, "CRITICAL, WARNING or INFO"),
        must("success", _B, "did it hold?"),
        Column("observed_value", _S, "what was observed, in words"),
        must("failed_rows", _L, "rows that broke it"),
        must("checked_rows", _L, "rows looked at"),
        Column("table_version", _L, "Delta version checked"),
        must("started_at", _T, "wall clock at which the run began"),
        must("seconds_ms", _L, "how long the check took, ms"),
        _OBSERVED_DATE,
    ),
    ("run_id", "expectation"),
)
DQ_FAILURES: Final = GoldTable(
    "dq_failures",
    "failing row of an expectation, a sample of at most 200 per run and expectation",
    (
        _OBSERVED_AT,
        must("run_id", _S, "run"),
        must("expectation", _S, "check"),
        must("table", _S, "table"),
        must("row_key", _S, "key of the failing row, readable"),
        must("detail", _S, "the row's figures, readable"),
        _OBSERVED_DATE,
    ),
    ("run_id", "expectation", "row_key"),
)

SPARK_TABLES: Final = (
    CONSUMER_LAG,
    STALLED_WINDOWS,
    DUPLICATE_RISK_WINDOWS,
    OWNERSHIP,
    REBALANCES,
    DEAD_LETTERS,
    OFFSET_VIOLATIONS,
    GROUP_STATE,
    EMITTER_HEALTH,
)
"""Written by Spark alone."""

DELTA_RS_TABLES: Final = (DQ_RESULTS, DQ_FAILURES)
"""Written by delta-rs alone: the two kinds of writer never meet on one table."""

GOLD_TABLES: Final = (*SPARK_TABLES, *DELTA_RS_TABLES)
BY_NAME: Final = {table.name: table for table in GOLD_TABLES}

GOLD_FOLDER: Final = "gold"
STATE_FOLDER: Final = "state"
"""A lake is a folder or object-store prefix: <lake>/bronze/<table>, <lake>/gold/<table>,
<lake>/state/<table>.
"""
