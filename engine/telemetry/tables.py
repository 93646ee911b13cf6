"""The bronze tables: every fact the engine reports, declared once, as names, types and meanings.

Place in the walk: an observer call becomes a row of one of these tables in `events`, waits in the
spool, and is appended to the Delta table of the same name by the shipper; the pipelines read the
schemas from here and nowhere else.

Invariant: every row carries the COMMON columns; (emitter, seq) is its primary key; seq is gapless
per emitter over all tables together. Tables only ever gain nullable columns at their end.

Absent on purpose: pyarrow and Spark types. `ColumnType` is a closed vocabulary that both sides
translate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class ColumnType(Enum):
    """Types both Spark and Arrow know. TIMESTAMP is µs UTC and travels as a whole number."""

    STRING = "string"
    INT = "int"
    LONG = "long"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"
    STRINGS = "array<string>"
    RANGES = "array<struct<from_offset:long,to_offset:long>>"
    OWNED_QUEUES = "array<struct<topic:string,queue_id:int,committed:long,pulled:long>>"
    TABLE_COUNTS = "array<struct<table:string,rows:long>>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type, whether it may be null (unknown), and what it means."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One bronze table: name, what one row stands for, and its own columns."""

    name: str
    grain: str
    own: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Common columns first, then the table's own, then the partition column."""
        return (*COMMON, *self.own, EVENT_DATE)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the table's own columns, in the order in which a spooled row carries them."""
        return tuple(column.name for column in self.own)


_S, _I, _L, _B, _T = (
    ColumnType.STRING,
    ColumnType.INT,
    ColumnType.LONG,
    ColumnType.BOOLEAN,
    ColumnType.TIMESTAMP,
)


def must(name: str, kind: ColumnType, meaning: str) -> Column:
    """A column that is never null."""
    return Column(name, kind, meaning, nullable=False)


COMMON: Final = (
    must("cluster", _S, "cluster name"),
    must("broker", _S, "broker name"),
    must(
        "broker_epoch",
        _L,
        "boot time of the broker, µs since 1970 UTC; tells one life of it from the next",
    ),
    must(
        "emitter",
        _S,
        "who reported: cluster/broker/broker_id, of an observed broker cluster/broker/observer; "
        "the shipper of that spool adds /shipper",
    ),
    must("seq", _L, "gapless number of the row per emitter, over all its tables, from 1"),
    must("event_time", _T, "the broker's clock when it happened"),
)
EVENT_DATE: Final = must("event_date", ColumnType.DATE, "UTC date of event_time; the partition")

_GROUP = must("group", _S, "consumer group")
_TOPIC = must("topic", _S, "topic")
_QUEUE = must("queue_id", _I, "queue number inside topic and broker")

CONSUME_OFFSETS: Final = Table(
    "consume_offsets",
    "a report of a consume offset that changed it, lowered it, reset it or was refused",
    (
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("offset", _L, "reported consume offset: the NEXT message to consume"),
        Column("previous_offset", _L, "what was stored before; null when nothing was"),
        must(
            "path",
            _S,
            "COMMIT_RPC, PULL_PIGGYBACK, TRANSACTION, RESET or LOCAL; RESTORE: a broker's life "
            "began with it; OBSERVED: it was higher when an observer looked before",
        ),
        must("trigger", _S, "TIMER, SHUTDOWN, HAND_OVER or UNKNOWN, as the client told"),
        Column(
            "client_id",
            _S,
            "client that reported; null when it has sent no heartbeat on this connection",
        ),
        must("accepted", _B, "was it stored?"),
        Column("min_offset", _L, "first message the queue still keeps"),
        Column("max_offset", _L, "next offset to be written in the queue"),
    ),
)
QUEUE_WATERMARKS: Final = Table(
    "queue_watermarks",
    "queue and grid second, when changed; every queue in each snapshot",
    (
        _TOPIC,
        _QUEUE,
        must("min_offset", _L, "first message the queue still keeps"),
        must("max_offset", _L, "next offset to be written"),
        Column("flushed_offset", _L, "first queue offset whose message a power cut could lose now"),
        Column(
            "replicated_offset",
            _L,
            "first queue offset not yet on a replica; null without replicas",
        ),
        Column(
            "last_store_time", _T, "store time of the newest message; null when the queue is empty"
        ),
        must("readable", _B, "is the queue below the topic's readQueueNums and may it be read?"),
    ),
)
GROUP_WATERMARKS: Final = Table(
    "group_watermarks",
    "group, queue and grid second, when changed; all in each snapshot; at once for every queue of "
    "a client that left, expired, was revoked or was reset. Pulls and reports that moved nothing "
    "are a change only while messages wait for the group",
    (
        _GROUP,
        _TOPIC,
        _QUEUE,
        Column(
            "pulled", _L, "next offset nobody of the group has pulled; null when nobody has pulled"
        ),
        Column(
            "processed",
            _L,
            "one past the highest finished offset, told by the client; null when it did not tell",
        ),
        Column("committed", _L, "consume offset in the broker's memory; null when none"),
        Column("persisted", _L, "consume offset in the broker's file; null when none"),
        must("committed_state", _S, "EXACT, AT_END, PURGED, UNREADABLE or NONE"),
        Column(
            "store_time_at_committed",
            _T,
            "store time of the message AT committed; null unless EXACT",
        ),
        must("min_offset", _L, "first message the queue still keeps"),
        must("max_offset", _L, "next offset to be written"),
        Column(
            "last_store_time", _T, "store time of the newest message; null when the queue is empty"
        ),
        Column("last_puller", _S, "client that pulled last"),
        Column("lock_holder", _S, "client that holds the queue's order lock; null when unlocked"),
        Column("last_pull_time", _T, "when the group last pulled this queue"),
        Column(
            "last_commit_time", _T, "when the group last reported an offset for it, changed or not"
        ),
        must(
            "reports",
            _L,
            "offset reports since the previous row of this key, unchanged ones included",
        ),
        Column(
            "message_model",
            _S,
            "CLUSTERING or BROADCASTING, as the members say; null without members",
        ),
        Column("members", _I, "clients of the group known to this broker"),
        Column(
            "store_time_error_ms",
            _L,
            "how far store_time_at_committed may be off: it was told by whom messages may not be "
            "read; null when it is that of the very message",
        ),
    ),
)
REBALANCE_EVENTS: Final = Table(
    "rebalance_events",
    "change of a group's membership, subscription or queue ownership",
    (
        _GROUP,
        Column("client_id", _S, "client it is about; null for QUEUES_CHANGED of the topic"),
        must(
            "kind",
            _S,
            "JOINED, LEFT, EXPIRED, SUBSCRIPTION_CHANGED, SUBSCRIPTION_CONFLICT, QUEUES_CHANGED, "
            "CLIENT_ID_SHARED (two open connections tell of one client id in turn), ASSIGNED or "
            "REVOKED",
        ),
        must(
            "inferred",
            _B,
            "ASSIGNED and REVOKED taken from the first pull of a new reader, not told",
        ),
        must("generation", _L, "membership changes of the group since this boot"),
        Column("strategy", _S, "allocation strategy, when told"),
        Column("before", ColumnType.STRINGS, "members (null: over 512), or subscription, before"),
        Column("after", ColumnType.STRINGS, "members (null: over 512), or subscription, after"),
        Column(
            "queues",
            ColumnType.OWNED_QUEUES,
            "queues concerned, with their offsets at that instant",
        ),
        Column(
            "reason",
            _S,
            "UNREGISTERED, CONNECTION_LOST, BROKER_STOPPED, HEARTBEAT_EXPIRED or other words; null "
            "when obvious",
        ),
    ),
)
CLIENT_WINDOWS: Final = Table(
    "client_windows",
    "process queue of a client and sample, when anything but its times changed; unchanged ones as "
    "often as there are snapshots; one with dropped when the client holds the queue no more, or is "
    "gone",
    (
        must("client_id", _S, "client"),
        _GROUP,
        _TOPIC,
        _QUEUE,
        Column("first_held", _L, "lowest offset held and not finished; null when nothing is held"),
        Column("last_held", _L, "highest offset held"),
        must("held_count", _L, "messages held and not finished"),
        must("held_bytes", _L, "their bodies' bytes"),
        Column(
            "held_ranges",
            ColumnType.RANGES,
            "held offsets as ranges [from, to), at most 32; null when not told",
        ),
        Column(
            "finished_count",
            _L,
            "finished offsets at or above client_committed; null when not told",
        ),
        Column(
            "filtered_count",
            _L,
            "messages dropped by the client's own tag test; null when not told",
        ),
        Column("head_message_id", _S, "message id of the head of the window"),
        Column("head_since", _T, "since when the head is in a listener"),
        Column("client_committed", _L, "consume offset the client would report now"),
        must("locked", _B, "order lock held, as the client believes"),
        must("dropped", _B, "is the process queue given up?"),
        Column("last_pull_time", _T, "when the client last pulled it"),
        Column("last_consume_time", _T, "when a listener last finished a message of it"),
        Column(
            "stack",
            _S,
            "where the listeners of a head that does not move stand, as the client says; null "
            "when it was not asked or did not say",
        ),
        Column(
            "attended",
            _B,
            "did the client turn to the queue of late, to pull or to see that it may not: has its "
            "own last_pull_time moved, by the broker's clock? null when not told",
        ),
        Column(
            "answered",
            _B,
            "false: the client answers no more, and the rest of the row is what it said last; true "
            "when it did; null when not told",
        ),
        Column(
            "top_key",
            _S,
            "sharding key, or else keys, that most of the lowest held messages have, 256 of which "
            "are looked at; null when none has any, or the client does not tell",
        ),
        Column("top_key_messages", _L, "messages of these that have it"),
        Column("keyed_messages", _L, "messages of these that have any"),
        Column("resting", _S, "why pulls of it rest: COUNT, BYTES or SPAN; null: they do not"),
    ),
)
RETRY_DLQ_FLOW: Final = Table(
    "retry_dlq_flow",
    "step of a failed message",
    (
        Column(
            "message_id", _S, "UNIQ_KEY, kept over all retries; null when the producer set none"
        ),
        Column("origin_topic", _S, "topic the message was first sent to"),
        Column("origin_queue_id", _I, "its queue there, when known"),
        Column("origin_offset", _L, "its queue offset there, when known"),
        _GROUP,
        must("reconsume_times", _I, "failed tries after this step"),
        must(
            "step",
            _S,
            "SENT_BACK, SCHEDULED, DELIVERED, LOCAL_RETRY, DEAD_LETTERED, REDRIVEN, DISCARDED or "
            "EXPIRED; SENT_AGAIN: the group was handed a second copy that the producer had sent, "
            "whose queue and offset the row names",
        ),
        Column(
            "delay_ms",
            _L,
            "delay until the next delivery; of what came out of a delay level, DELIVERED or given "
            "up there, the one that was over; null when none follows",
        ),
        Column("reason", _S, "why, in words"),
    ),
)
REDELIVERIES: Final = Table(
    "redeliveries",
    "pull that starts below what the group had already pulled from that queue",
    (
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("from_offset", _L, "first offset delivered again"),
        must(
            "to_offset",
            _L,
            "one past the last offset this answer delivered again; at most the group's pulled mark",
        ),
        Column("client_id", _S, "who pulls now"),
        Column("previous_client_id", _S, "who had pulled them"),
        must("broker_epoch_before", _L, "life of the broker in which they were pulled first"),
        Column(
            "delivered_count",
            _L,
            "messages of the range that this answer held, after the tag filter",
        ),
    ),
)
FLUSH_CHECKPOINTS: Final = Table(
    "flush_checkpoints",
    "component, action, cause and second (count, sum and max); SHUTDOWN and RECOVERY at once",
    (
        must("component", _S, "COMMIT_LOG, CONSUME_QUEUE, INDEX, CONSUMER_OFFSETS, DELAY or TIMER"),
        must("action", _S, "COMMIT, FLUSH or PERSIST"),
        must("cause", _S, "TIMER, GROUP, SHUTDOWN or RECOVERY"),
        Column("written", _L, "bytes written so far (commit log: physical offset)"),
        Column("committed", _L, "bytes moved from the transient pool to the file"),
        Column("flushed", _L, "bytes on stable storage"),
        Column("store_time", _T, "store time of the newest message flushed"),
        must(
            "count",
            _L,
            "how many in that second; of a broker that is watched from outside 0, or 1 for one or "
            "more that have ended since the look before",
        ),
        must("duration_us_sum", _L, "their time together, µs; 0 when watched from outside"),
        must("duration_us_max", _L, "the longest, µs"),
        Column("content_crc", _L, "CRC-32 of what was persisted (tables only)"),
        Column("kernel_dirty", _L, "bytes of the machine that wait for the kernel to write them"),
        Column("kernel_writeback", _L, "bytes of the machine that the kernel is writing now"),
        Column(
            "at_risk_bytes_max",
            _L,
            "most bytes that a crash could have cost at an instant since the row before: a SIGKILL "
            "(COMMIT) or a power cut (FLUSH); commit log only",
        ),
    ),
)
LIFECYCLE: Final = Table(
    "lifecycle",
    "boot, recovery, role change, shutdown, fail-over, refused or damaged file, malformed "
    "connection, complete snapshot, end of a topic or group, step of the clock",
    (
        must(
            "kind",
            _S,
            "BOOT, RECOVERY, SHUTDOWN, ROLE_CHANGE, DAMAGED_FILE, DISK_FULL, SPOOL_LOSS, SNAPSHOT, "
            "TOPIC_GONE, QUEUES_REMOVED, GROUP_GONE, GROUP_DELETED, CLOCK_STEPPED, OBSERVED, "
            "BROKER_GONE, LOOKS_SLOW, LOOKS_IN_TIME, ...",
        ),
        Column("clean", _B, "was the stop before this boot clean?"),
        Column("truncated_from", _L, "physical offset kept"),
        Column("truncated_to", _L, "physical offset before the cut"),
        Column("term", _L, "Raft term; null without Raft"),
        Column("detail", _S, "the rest in words, with file names and figures"),
        Column("group", _S, "consumer group it is about; null when it is about none"),
        Column("topic", _S, "topic it is about; null when it is about none"),
        Column(
            "queue_id_from",
            _I,
            "QUEUES_REMOVED: queues of the topic from this number on are not read any more",
        ),
        Column("seq_from", _L, "SNAPSHOT: seq of the first row that may be of it"),
        Column("time_from", _T, "SNAPSHOT: the broker's clock when it began"),
        Column("step_ms", _L, "CLOCK_STEPPED: how far the machine's clock was set; negative: back"),
        Column(
            "observed_by",
            _S,
            "OBSERVED: who watches the broker from outside; its clock is that of the rows",
        ),
        Column(
            "report_each_ms",
            _L,
            "OBSERVED: facts are polled so often; what they say may be older by as much",
        ),
        Column(
            "skew_ms",
            _L,
            "OBSERVED: how far the broker's clock is ahead of the observer's, to a second; "
            "negative: behind; null when the broker does not tell",
        ),
        Column("address", _S, "OBSERVED, ROLE_CHANGE: where the broker is asked, host:port"),
        Column("name_servers", _S, "OBSERVED: those that told of it, host:port;host:port, sorted"),
    ),
)
"""What a reader may conclude from it, per emitter:

SNAPSHOT    every queue, and every queue of a group, that was there when the snapshot began and is
            there still has a row in queue_watermarks or group_watermarks with seq_from <= seq <
            the seq of this row. So a key whose newest row is below seq_from is gone, and any
            other is as its newest row says. The first snapshot of a life begins at its boot, the
            last one ends before its SHUTDOWN.
SPOOL_LOSS  rows were lost. After it everything of that emitter is UNKNOWN until its next complete
            snapshot: a SNAPSHOT whose seq_from is above the seq of the loss. One begins at once.
            What members told before it (client_windows, consume_stats) holds no more, and is told
            anew.
TOPIC_GONE  the topic was deleted: its queues and what groups had on them are gone. What comes after
            it under the same name is another life of the topic, and begins at offset 0.
GROUP_GONE  the group was deleted with its offsets, or lost the last thing it was known by; what
            comes after it under the same name begins anew. Members that stay begin a new life.
GROUP_DELETED  the group's settings were deleted; its offsets, or its members, are still there.
OBSERVED    an observer that asks the broker tells the rows of this emitter; said at the first look
            of each life, and again when the skew has moved by a second, or the broker.
ROLE_CHANGE another copy of the broker is the master, and tells what follows; or none of them is.
LOOKS_SLOW  a look takes longer than report_each_ms: so old may facts be, until LOOKS_IN_TIME.
BROKER_GONE the broker was taken out for good: a SNAPSHOT with nothing in it comes before it. The
            emitter has ended, until it tells anything more. Its time is that of the last look.
QUEUES_REMOVED  nobody reads the queues from queue_id_from on; they stay, with readable false.

Between two rows of a key nothing of it changed, as far as the shipped horizon goes.
"""

# The shipper's own statements: emitter `<emitter>/shipper` with a gapless seq of its own, so that
# the broker's seq stays gapless over the other tables; broker_epoch is the newest shipped row's.
SHIPMENTS: Final = Table(
    "shipments",
    "run of spooled rows that is now in every table",
    (
        must(
            "seq_from",
            _L,
            "first seq shipped, of the broker's emitter; seq_to + 1 when no row came, only time",
        ),
        must("seq_to", _L, "last seq shipped: the shipped horizon"),
        must(
            "event_time_to", _T, "up to when the emitter has reported everything it had to report"
        ),
        must("rows", ColumnType.TABLE_COUNTS, "rows per table"),
        Column(
            "shipped_time",
            _T,
            "the shipper's wall clock, as it is, when those rows were committed",
        ),
    ),
)
OFFSET_ANSWERS: Final = Table(
    "offset_answers",
    "answered question of a client where its group is to go on in a queue",
    (
        Column(
            "client_id",
            _S,
            "client that asked; null when it has sent no heartbeat on this connection",
        ),
        _GROUP,
        _TOPIC,
        _QUEUE,
        Column(
            "told_offset",
            _L,
            "consume offset it was told; null: that there is none, so it begins where it is "
            "configured to",
        ),
        Column("committed", _L, "consume offset in the broker's memory then; null when none"),
        Column(
            "pulled",
            _L,
            "next offset nobody of the group had pulled then; null when nobody had pulled",
        ),
        Column("last_puller", _S, "client that had pulled last; null when nobody had pulled"),
    ),
)

CONSUME_STATS: Final = Table(
    "consume_stats",
    "member of a group, topic and sample, when the member tells other figures than before; "
    "unchanged ones as often as there are snapshots. Figures of time are of the minute before",
    (
        must("client_id", _S, "client"),
        _GROUP,
        _TOPIC,
        Column(
            "listeners",
            _I,
            "listener calls that the client makes at once, over all topics; null when not told",
        ),
        Column("listeners_busy", _I, "of these, calls under way; null when not told"),
        Column(
            "listeners_queued",
            _L,
            "batches of messages (of an orderly consumer: queues) that wait for a listener; null "
            "when not told",
        ),
        Column("paused", _B, "did the application suspend the consumer? Null when not told"),
        Column("calls", _L, "listener calls that ended in the minute; null when not told"),
        Column("consume_us_mean", _L, "their mean length, µs; null without calls or when not told"),
        Column("consume_ms_p50", _L, "half of them took no longer; to within a quarter; as above"),
        Column("consume_ms_p99", _L, "99 % of them took no longer; to within a quarter; as above"),
        Column("consumed", _L, "messages that listeners took well in the minute"),
        Column("failed", _L, "messages that listeners failed in the minute"),
        Column(
            "flow_count_ms",
            _L,
            "for how long of the minute pulls rested since windows held too many messages, summed "
            "over the queues held; null when not told",
        ),
        Column("flow_bytes_ms", _L, "the same, since windows held too many bytes"),
        Column("flow_span_ms", _L, "the same, since too much lay beyond an unfinished message"),
        must("queues_held", _I, "queues of the topic that the client holds, over all brokers"),
        Column("topic_queues", _I, "queues of the topic, when the client divided them last"),
        Column("group_members", _I, "members among which it divided them"),
    ),
)
COLD_READS: Final = Table(
    "cold_reads",
    "group, topic and ten seconds in which pulls were answered with messages that lay so far "
    "behind the end of the commit log that they are taken to be on disk alone, or nearer ones "
    "(from 64 MiB on) while the broker had to read as much from disk",
    (
        _GROUP,
        _TOPIC,
        must("pulls", _L, "such answers"),
        must("messages", _L, "messages in them"),
        must("size_bytes", _L, "their bytes"),
        must("behind_bytes_max", _L, "how far behind the end of the log the furthest lay"),
        must(
            "resident_bytes",
            _L,
            "nearer messages are taken to be in memory (accessMessageInMemoryMaxRatio)",
        ),
        must("messages_a_pull_max", _L, "messages that one such answer may hold"),
        Column(
            "disk_read_bytes",
            _L,
            "bytes of any file that the broker's process made the kernel read from storage in "
            "these seconds, for whomever; null where the kernel does not tell",
        ),
    ),
)

REUSED_OFFSETS: Final = Table(
    "reused_offsets",
    "queue whose log lost messages that a group had pulled, and whose offsets were given again: of "
    "them the highest that is known",
    (
        _GROUP,
        _TOPIC,
        _QUEUE,
        must("offset", _L, "queue offset that the group had pulled, and that was given again"),
        must(
            "queue_end",
            _L,
            "where the queue ended when its broker began anew: all offsets from there to `offset` "
            "were given again",
        ),
        Column(
            "message_id_before",
            _S,
            "UNIQ_KEY of the message that was lost; null when its producer set none",
        ),
        Column(
            "message_id",
            _S,
            "UNIQ_KEY of the message that is there now; null when its producer set none",
        ),
        Column("client_id", _S, "client that had pulled; null when it had no name"),
    ),
)

DELAY_LEVELS: Final = Table(
    "delay_levels",
    "delay level of a broker that is watched from outside, when where it stands has changed; each "
    "10 minutes while messages wait",
    (
        must("group", _S, "always *: a level has messages of all groups"),
        must("level", _I, "its number, from 1 on"),
        must("delay_ms", _L, "its delay, by the broker's settings"),
        must("next_offset", _L, "of its queue, the next message to come out"),
        must("end_offset", _L, "of its queue, the next message to be written"),
        must(
            "overdue",
            _L,
            "messages from next_offset on that were there longer ago than the delay, at least",
        ),
    ),
)

TABLES: Final = (
    CONSUME_OFFSETS,
    QUEUE_WATERMARKS,
    GROUP_WATERMARKS,
    REBALANCE_EVENTS,
    CLIENT_WINDOWS,
    RETRY_DLQ_FLOW,
    REDELIVERIES,
    FLUSH_CHECKPOINTS,
    LIFECYCLE,
    SHIPMENTS,
    OFFSET_ANSWERS,
    CONSUME_STATS,
    COLD_READS,
    REUSED_OFFSETS,
    DELAY_LEVELS,
)
"""Their order is the table number inside the spool: append only."""

BRONZE_FOLDER: Final = "bronze"
"""Where they lie in a lake: <lake>/bronze/<table>."""

LAKE_SCHEMES: Final = ("file", "s3")
"""URI schemes of a lake that delta-rs and Spark both reach; without a scheme it is a folder."""

BY_NAME: Final = {table.name: table for table in TABLES}
