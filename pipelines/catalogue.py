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
from pipelines.marts.consumer_lag import CONSUMER_LAG
from pipelines.marts.group_state import GROUP_STATE
from pipelines.marts.mart import GoldTable
from pipelines.marts.stalled_windows import STALLED_WINDOWS

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
    "SPARK_TABLES",
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


_OBSERVED_AT = must("observed_at", _T, "moment of data time this row speaks of")
_OBSERVED_DATE = must("observed_date", _D, "UTC date of observed_at; the partition")
_CLUSTER = must("cluster", _S, "cluster name")
_BROKER = must("broker", _S, "broker name")
_GROUP = must("group", _S, "consumer group")
_TOPIC = must("topic", _S, "topic")
_QUEUE = must("queue_id", _I, "queue number inside topic and broker")
_EMITTER = must("emitter", _S, "who reported the evidence")
_SEQ = must("seq", _L, "newest bronze row (of that emitter) this row rests on")

_INTERVAL: Final = (
    must("window_id", _S, "hash of rule, key and opened_at; the same over all revisions"),
    must("revision", _I, "1 for the first; the highest is the present truth"),
    must("state", _S, "OPEN or CLOSED"),
    _OBSERVED_AT,
    must("valid_from", _T, "data time from which this revision is the truth; equals observed_at"),
    must("opened_at", _T, "when the interval began"),
    Column("closed_at", _T, "when it ended; null while OPEN"),
)

DUPLICATE_RISK_WINDOWS: Final = GoldTable(
    "duplicate_risk_windows",
    "revision of an interval in which messages of a queue were at risk of being consumed twice, "
    "by cause",
    (
        *_INTERVAL,
        _CLUSTER,
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        must(
            "cause",
            _S,
            "CONSUMER_CRASH, BROKER_CRASH, HAND_OVER, REWIND, RESET, OFFSET_STORE_LOST, SEND_BACK, "
            "SEND_RETRY (a message stored twice under one UNIQ_KEY), DOUBLE_OWNER or "
            "REPLAY_AFTER_TRUNCATION",
        ),
        must(
            "basis",
            _S,
            "what told: DEPARTURE, RESTART, OFFSET_FALL, EXPOSURE (at risk while commits stand "
            "still), SEND_BACK, SEND_RETRY, or REDELIVERY (seen without a prediction)",
        ),
        must("outcome", _S, "POSSIBLE, CONFIRMED or PASSED"),
        Column("client_id", _S, "client whose work may be repeated"),
        Column("next_client_id", _S, "client that pulled the range again, or pulls now"),
        must("from_offset", _L, "first offset at risk"),
        must("to_offset", _L, "one past the last offset at risk"),
        must(
            "at_risk_messages",
            _L,
            "predicted duplicates at most: to_offset - from_offset, or delivered messages",
        ),
        Column(
            "certain_messages",
            _L,
            "of these, finished already (will be processed again); null when not told",
        ),
        Column("uncertain_messages", _L, "of these, held and not finished; null when not told"),
        Column("redelivered_from", _L, "first offset delivered again; null unless CONFIRMED"),
        Column("redelivered_to", _L, "one past the last; null unless CONFIRMED"),
        must(
            "redelivered_messages",
            _L,
            "observed re-deliveries so far, inside or outside the predicted range",
        ),
        Column("message_id", _S, "message concerned, for SEND_BACK and SEND_RETRY"),
        must("evidence", _S, "one sentence with the figures"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("window_id", "revision"),
    revised=True,
)
OWNERSHIP: Final = GoldTable(
    "ownership",
    "revision of an interval in which one client read one queue for a group",
    (
        *_INTERVAL,
        _CLUSTER,
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("client_id", _S, "the owner"),
        must("inferred", _B, "taken from pulls, not told by the client"),
        Column("ended_by", _S, "REVOKED, LEFT, EXPIRED or BROKER_STOP; null while OPEN"),
        Column("committed_at_end", _L, "consume offset when it ended"),
        Column("pulled_at_end", _L, "pulled mark when it ended"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("window_id", "revision"),
    revised=True,
)
REBALANCES: Final = GoldTable(
    "rebalances",
    "change of a group's membership or subscription, as reported",
    (
        _OBSERVED_AT,
        _CLUSTER,
        _BROKER,
        _GROUP,
        Column("client_id", _S, "client it is about"),
        must(
            "kind",
            _S,
            "JOINED, LEFT, EXPIRED, SUBSCRIPTION_CHANGED, SUBSCRIPTION_CONFLICT or QUEUES_CHANGED",
        ),
        must("generation", _L, "membership changes of the group since the broker's boot"),
        Column("members_before", _I, "members before"),
        Column("members_after", _I, "members after"),
        Column("reason", _S, "in the engine's words"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("emitter", "seq"),
)
DEAD_LETTERS: Final = GoldTable(
    "dead_letters",
    "message that was dead-lettered",
    (
        _OBSERVED_AT,
        _CLUSTER,
        _BROKER,
        _GROUP,
        Column("message_id", _S, "UNIQ_KEY"),
        Column("origin_topic", _S, "topic it was first sent to"),
        Column("origin_queue_id", _I, "queue there"),
        Column("origin_offset", _L, "queue offset there"),
        must("reconsume_times", _I, "failed tries"),
        Column("reason", _S, "why"),
        Column(
            "first_failed_at", _T, "first SENT_BACK of the same message seen; null when not seen"
        ),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("emitter", "seq"),
)
OFFSET_VIOLATIONS: Final = GoldTable(
    "offset_violations",
    "accepted offset report that broke an offset law",
    (
        _OBSERVED_AT,
        _CLUSTER,
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("law", _S, "MONOTONIC, AT_MOST_MAX or AT_LEAST_MIN"),
        must("offset", _L, "offset reported"),
        Column("previous_offset", _L, "offset stored before"),
        Column("min_offset", _L, "first message kept"),
        Column("max_offset", _L, "next offset to be written"),
        must("delta", _L, "by how many messages the law is broken"),
        must("cause", _S, "RESET, BROKER_RESTART, REPLAY, HAND_OVER or UNEXPLAINED"),
        must("explained", _B, "does another fact account for it?"),
        Column("path", _S, "commit path"),
        Column("client_id", _S, "who reported"),
        _EMITTER,
        _SEQ,
        _OBSERVED_DATE,
    ),
    ("emitter", "seq", "law"),
)
EMITTER_HEALTH: Final = GoldTable(
    "emitter_health",
    "emitter and shipment that carried rows",
    (
        _OBSERVED_AT,
        _EMITTER,
        must("seq_from", _L, "first seq of the shipment"),
        must("seq_to", _L, "last seq of the shipment: a shipped horizon"),
        must("rows_expected", _L, "seq_to - seq_from + 1"),
        must("rows_found", _L, "rows found in bronze, over all tables"),
        must(
            "rows_distinct",
            _L,
            "distinct seq among them; all three equal when telemetry is gapless and unique",
        ),
        _OBSERVED_DATE,
    ),
    ("emitter", "seq_to"),
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
