"""Bronze tables for brokers, including watermarks, flushes, life cycle and shipments.

Place in the walk: listed by `tables`, which everybody reads. Absent on purpose: groups.
"""

from __future__ import annotations

from typing import Final

from engine.telemetry.columns import (
    BOOLEAN,
    GROUP,
    INT,
    LONG,
    QUEUE,
    STRING,
    TIMESTAMP,
    TOPIC,
    Column,
    ColumnType,
    Table,
    must,
)

QUEUE_WATERMARKS: Final = Table(
    "queue_watermarks",
    "queue and grid second, when changed; every queue in each snapshot",
    (
        TOPIC,
        QUEUE,
        must("min_offset", LONG, "first message the queue still keeps"),
        must("max_offset", LONG, "next offset to be written"),
        Column(
            "flushed_offset", LONG, "first queue offset whose message a power cut could lose now"
        ),
        Column(
            "replicated_offset",
            LONG,
            "first queue offset not yet on a replica; null without replicas",
        ),
        Column(
            "last_store_time",
            TIMESTAMP,
            "store time of the newest message; null when the queue is empty",
        ),
        must(
            "readable", BOOLEAN, "is the queue below the topic's readQueueNums and may it be read?"
        ),
    ),
)

FLUSH_CHECKPOINTS: Final = Table(
    "flush_checkpoints",
    "component, action, cause and second (count, sum and max); SHUTDOWN and RECOVERY at once",
    (
        must(
            "component",
            STRING,
            "COMMIT_LOG, CONSUME_QUEUE, INDEX, CONSUMER_OFFSETS or DELAY; REPLICA: the copy of the "
            "commit log that a slave has; TIMER: messages that wait for a moment",
        ),
        must("action", STRING, "COMMIT, FLUSH or PERSIST; REPLICATE of a REPLICA; WAIT of a TIMER"),
        must(
            "cause",
            STRING,
            "TIMER, GROUP, SHUTDOWN or RECOVERY; of a REPLICA the role of its master: "
            "ASYNC_MASTER or SYNC_MASTER",
        ),
        Column(
            "written",
            LONG,
            "bytes written so far (commit log: physical offset); TIMER: messages that wait, those "
            "that take another one back among them",
        ),
        Column("committed", LONG, "bytes moved from the transient pool to the file"),
        Column(
            "flushed",
            LONG,
            "bytes on stable storage; REPLICA: bytes that the slave has reported to have, null "
            "while it has reported nothing, or there is no slave",
        ),
        Column("store_time", TIMESTAMP, "store time of the newest message flushed"),
        must(
            "count",
            LONG,
            "how many in that second; of a broker that is watched from outside 0, or 1 for one or "
            "more that have ended since the look before",
        ),
        must("duration_us_sum", LONG, "their time together, µs; 0 when watched from outside"),
        must("duration_us_max", LONG, "the longest, µs"),
        Column("content_crc", LONG, "CRC-32 of what was persisted (tables only)"),
        Column("kernel_dirty", LONG, "bytes of the machine that wait for the kernel to write them"),
        Column("kernel_writeback", LONG, "bytes of the machine that the kernel is writing now"),
        Column(
            "at_risk_bytes_max",
            LONG,
            "most bytes that a crash could have cost at an instant since the row before: a SIGKILL "
            "(COMMIT) or a power cut (FLUSH); commit log only. REPLICA: most bytes that this "
            "slave lacked",
        ),
        Column(
            "replica",
            STRING,
            "REPLICA: the slave, host:port of its connection; null when there is none, although "
            "its master waits for one",
        ),
        Column(
            "due_by_hour",
            ColumnType.LONGS,
            "TIMER: how many are due in the hour of the clock that has begun, or were before, and "
            "in each of the 47 after it",
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
            STRING,
            "BOOT, RECOVERY, SHUTDOWN, ROLE_CHANGE, DAMAGED_FILE, DISK_FULL, SPOOL_LOSS, SNAPSHOT, "
            "TOPIC_GONE, TOPIC_MADE_AGAIN, QUEUES_REMOVED, GROUP_GONE, GROUP_DELETED, "
            "CLOCK_STEPPED, OBSERVED, BROKER_GONE, LOOKS_SLOW, LOOKS_IN_TIME, LOOKS_MISSED, "
            "SAYS_NOTHING, TOPIC_UNNAMED, TOPIC_NAMED, TOPIC_LEFT, OFFSETS_DELETED, TIMERS_LATE, "
            "TIMERS_IN_TIME, ...",
        ),
        Column("clean", BOOLEAN, "was the stop before this boot clean?"),
        Column("truncated_from", LONG, "physical offset kept"),
        Column("truncated_to", LONG, "physical offset before the cut"),
        Column("term", LONG, "Raft term, or epoch of a master; null without either"),
        Column("detail", STRING, "the rest in words, with file names and figures"),
        Column("group", STRING, "consumer group it is about; null when it is about none"),
        Column("topic", STRING, "topic it is about; null when it is about none"),
        Column(
            "queue_id_from",
            INT,
            "QUEUES_REMOVED: queues of the topic from this number on are not read any more",
        ),
        Column("seq_from", LONG, "SNAPSHOT: seq of the first row that may be of it"),
        Column(
            "time_from",
            TIMESTAMP,
            "SNAPSHOT: when it began; TOPIC_..., LOOKS_MISSED: the observer's look before",
        ),
        Column(
            "step_ms", LONG, "CLOCK_STEPPED: how far the machine's clock was set; negative: back"
        ),
        Column(
            "observed_by",
            STRING,
            "OBSERVED: who watches the broker from outside; its clock is that of the rows",
        ),
        Column(
            "report_each_ms",
            LONG,
            "OBSERVED: facts are polled so often; what they say may be older by as much",
        ),
        Column(
            "skew_ms",
            LONG,
            "OBSERVED: how far the broker's clock is ahead of the observer's, to a second; "
            "negative: behind; null when the broker does not say",
        ),
        Column("address", STRING, "OBSERVED, ROLE_CHANGE: where the broker is asked, host:port"),
        Column(
            "name_servers", STRING, "OBSERVED: those that listed it, host:port;host:port, sorted"
        ),
        Column(
            "first_seen",
            BOOLEAN,
            "BOOT: is it the first life of the broker that this emitter reports? The broker may "
            "have been up for long, since broker_epoch; null when nobody knows",
        ),
        Column(
            "role",
            STRING,
            "ROLE_CHANGE of a node that reports on itself: MASTER, SLAVE or NONE from then on, in "
            "the epoch `term`",
        ),
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
            What members reported before it (client_windows, consume_stats) holds no more, and
            is reported anew.
TOPIC_GONE  the topic was deleted: its queues and what groups had on them are gone. What comes after
            it under the same name is another life of the topic, and begins at offset 0.
TOPIC_MADE_AGAIN  after TOPIC_GONE: it is there again. No offset of the life before means anything.
GROUP_GONE  the group was deleted with its offsets, or lost the last thing it was known by; what
            comes after it under the same name begins anew. Members that stay begin a new life.
GROUP_DELETED  the group's settings were deleted; its offsets, or its members, are still there.
OBSERVED    an observer that asks the broker reports the rows of this emitter; said at the first
            look of each life, and again when the skew has moved by a second, or the broker.
ROLE_CHANGE another copy of the broker is the master, and reports what follows; or none of them is.
            Each copy that reports on itself is an emitter: of those that say MASTER the one of the
            greatest term reports on the broker, from this row on. What others have reported of
            queues, groups and members by then is over; they go on with facts about themselves.
            Whoever begins to follow says so by a SNAPSHOT with nothing in it.
LOOKS_MISSED  no look was answered from time_from to this row: nothing is known of what was between.
LOOKS_SLOW  a look takes longer than report_each_ms: so old may facts be, until LOOKS_IN_TIME.
BROKER_GONE the broker was taken out for good: a SNAPSHOT with nothing in it comes before it. The
            emitter has ended, until it reports anything more. Its time is that of the last look.
TOPIC_LEFT  every member of the group says what it subscribes to, and none names the topic: its
            queues are no lag of the group. A later row of one says that it reads the topic again;
            until then there is none, and a SNAPSHOT leaves its queues out.
TOPIC_UNNAMED  no member of the group names the topic any more; when that stays so for a minute, and
            nobody pulls it, TOPIC_LEFT follows. Until then what stands of it is no stall.
TOPIC_NAMED after TOPIC_UNNAMED: a member names it again, or one does not say what it names.
OFFSETS_DELETED  an administrator deleted the group's offsets on the topic: as TOPIC_LEFT.
SAYS_NOTHING  clients of the group, of the kind that detail names, answer with nothing when they are
            asked what they hold; said again each ten minutes.
TIMERS_LATE messages for a moment are due and were not delivered for ten seconds, until
            TIMERS_IN_TIME.
QUEUES_REMOVED  nobody reads the queues from queue_id_from on; they stay, with readable false.

Between two rows of a key nothing of it changed, as far as the shipped horizon goes.
"""

# The shipper's own statements: emitter `<emitter>/shipper` with a gapless seq of its own, so that
# the broker's seq stays its own over the other tables; broker_epoch is the newest shipped row's.
SHIPMENTS: Final = Table(
    "shipments",
    "run of spooled rows that is now in every table",
    (
        must(
            "seq_from",
            LONG,
            "first seq shipped, of the broker's emitter; seq_to + 1 when no row came, only time",
        ),
        must("seq_to", LONG, "last seq shipped: the shipped horizon"),
        must(
            "event_time_to",
            TIMESTAMP,
            "up to when the emitter has reported everything it had to report",
        ),
        must("rows", ColumnType.TABLE_COUNTS, "rows per table"),
        Column(
            "shipped_time",
            TIMESTAMP,
            "the shipper's wall clock, as it is, when those rows were committed",
        ),
        Column(
            "skipped",
            LONG,
            "seqs right before seq_from that no row has: the emitter's life passed them over when "
            "it began; null: none, by an earlier shipper",
        ),
    ),
)

COLD_READS: Final = Table(
    "cold_reads",
    "group, topic and ten seconds in which pulls were answered with messages that lay so far "
    "behind the end of the commit log that they are taken to be on disk alone, or nearer ones "
    "(from 64 MiB on) while the broker had to read as much from disk",
    (
        GROUP,
        TOPIC,
        must("pulls", LONG, "such answers"),
        must("messages", LONG, "messages in them"),
        must("size_bytes", LONG, "their bytes"),
        must("behind_bytes_max", LONG, "how far behind the end of the log the furthest lay"),
        must(
            "resident_bytes",
            LONG,
            "nearer messages are taken to be in memory (accessMessageInMemoryMaxRatio)",
        ),
        must("messages_a_pull_max", LONG, "messages that one such answer may hold"),
        Column(
            "disk_read_bytes",
            LONG,
            "bytes of any file that the broker's process made the kernel read from storage in "
            "these seconds, for whomever; null where the kernel does not say",
        ),
    ),
)

DELAY_LEVELS: Final = Table(
    "delay_levels",
    "delay level of a broker that is watched from outside, when where it stands has changed; each "
    "10 minutes while messages wait",
    (
        must("group", STRING, "always *: a level has messages of all groups"),
        must("level", INT, "its number, from 1 on"),
        must("delay_ms", LONG, "its delay, by the broker's settings"),
        must("next_offset", LONG, "of its queue, the next message to come out"),
        must("end_offset", LONG, "of its queue, the next message to be written"),
        must(
            "overdue",
            LONG,
            "messages from next_offset on that were there longer ago than the delay, at least",
        ),
    ),
)
