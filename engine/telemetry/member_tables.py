"""Bronze tables for group members: rebalances, held messages and consume rates.

Place in the walk: listed by `tables`, which everybody reads. Absent on purpose: offsets of groups.
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

REBALANCE_EVENTS: Final = Table(
    "rebalance_events",
    "change of a group's membership, subscription or queue ownership",
    (
        GROUP,
        Column("client_id", STRING, "client it is about; null for QUEUES_CHANGED of the topic"),
        must(
            "kind",
            STRING,
            "JOINED, LEFT, EXPIRED, SUBSCRIPTION_CHANGED, SUBSCRIPTION_CONFLICT, QUEUES_CHANGED, "
            "CLIENT_ID_SHARED (two open connections report one client id in turn), ASSIGNED or "
            "REVOKED",
        ),
        must(
            "inferred",
            BOOLEAN,
            "ASSIGNED and REVOKED taken from the first pull of a new reader, not reported",
        ),
        must("generation", LONG, "membership changes of the group since this boot"),
        Column("strategy", STRING, "allocation strategy; null when not reported"),
        Column("before", ColumnType.STRINGS, "members (null: over 512), or subscription, before"),
        Column("after", ColumnType.STRINGS, "members (null: over 512), or subscription, after"),
        Column(
            "queues",
            ColumnType.OWNED_QUEUES,
            "queues concerned, with their offsets at that instant",
        ),
        Column(
            "reason",
            STRING,
            "UNREGISTERED, CONNECTION_LOST, BROKER_STOPPED, HEARTBEAT_EXPIRED or other words; null "
            "when obvious",
        ),
        Column(
            "language", STRING, "JOINED: the client's, as it says itself; null when not reported"
        ),
        Column(
            "client_version",
            LONG,
            "JOINED: RocketMQ's number of the client's version (513 is 5.5.0), of a gRPC client "
            "that of its proxy; null when not reported",
        ),
        Column("proxy", STRING, "JOINED: the proxy that it is connected with; null: the broker"),
        Column(
            "subscription",
            ColumnType.STRINGS,
            "JOINED with a proxy: what its group subscribes to, topic:expression",
        ),
    ),
)

CLIENT_WINDOWS: Final = Table(
    "client_windows",
    "process queue of a client and sample, when anything but its times changed; unchanged ones as "
    "often as there are snapshots; one with dropped when the client holds the queue no more, or is "
    "gone",
    (
        must("client_id", STRING, "client"),
        GROUP,
        TOPIC,
        QUEUE,
        Column(
            "first_held", LONG, "lowest offset held and not finished; null when nothing is held"
        ),
        Column("last_held", LONG, "highest offset held"),
        must("held_count", LONG, "messages held and not finished"),
        must("held_bytes", LONG, "their bodies' bytes"),
        Column(
            "held_ranges",
            ColumnType.RANGES,
            "held offsets as ranges [from, to), at most 32; null when not reported",
        ),
        Column(
            "finished_count",
            LONG,
            "finished offsets at or above client_committed; null when not reported",
        ),
        Column(
            "filtered_count",
            LONG,
            "messages dropped by the client's own tag test; null when not reported",
        ),
        Column("head_message_id", STRING, "message id of the head of the window"),
        Column("head_since", TIMESTAMP, "since when the head is in a listener"),
        Column("client_committed", LONG, "consume offset the client would report now"),
        must("locked", BOOLEAN, "order lock held, as the client believes"),
        must("dropped", BOOLEAN, "is the process queue given up?"),
        Column("last_pull_time", TIMESTAMP, "when the client last pulled it"),
        Column("last_consume_time", TIMESTAMP, "when a listener last finished a message of it"),
        Column(
            "stack",
            STRING,
            "where the listeners of a head that does not move stand, as the client says; null "
            "when it was not asked or did not say",
        ),
        Column(
            "attended",
            BOOLEAN,
            "did the client turn to the queue of late, to pull or to see that it may not: has its "
            "own last_pull_time moved, by the broker's clock? null when not reported",
        ),
        Column(
            "answered",
            BOOLEAN,
            "false: the client answers no more, and the rest of the row is what it said last; true "
            "when it did; null when not reported",
        ),
        Column(
            "top_key",
            STRING,
            "sharding key, or else keys, that most of the lowest held messages have, 256 of which "
            "are looked at; null when none has any, or the client does not report it",
        ),
        Column("top_key_messages", LONG, "messages of these that have it"),
        Column("keyed_messages", LONG, "messages of these that have any"),
        Column("resting", STRING, "why pulls of it rest: COUNT, BYTES or SPAN; null: they do not"),
        Column(
            "takes_all",
            BOOLEAN,
            "does the client take every message of the queue: is it a push consumer whose "
            "subscription is `*`? null when it does not say",
        ),
    ),
)

CONSUME_STATS: Final = Table(
    "consume_stats",
    "member of a group, topic and sample, when the member reports other figures than before; "
    "unchanged ones as often as there are snapshots. Figures of time are of the minute before",
    (
        must("client_id", STRING, "client"),
        GROUP,
        TOPIC,
        Column(
            "listeners",
            INT,
            "listener calls that the client makes at once, over all topics; null when not reported",
        ),
        Column("listeners_busy", INT, "of these, calls under way; null when not reported"),
        Column(
            "listeners_queued",
            LONG,
            "batches of messages (of an orderly consumer: queues) that wait for a listener; null "
            "when not reported",
        ),
        Column(
            "paused", BOOLEAN, "did the application suspend the consumer? Null when not reported"
        ),
        Column("calls", LONG, "listener calls that ended in the minute; null when not reported"),
        Column(
            "consume_us_mean",
            LONG,
            "their mean length, µs; null without calls or when not reported",
        ),
        Column(
            "consume_ms_p50", LONG, "half of them took no longer; to within a quarter; as above"
        ),
        Column(
            "consume_ms_p99", LONG, "99 % of them took no longer; to within a quarter; as above"
        ),
        Column("consumed", LONG, "messages that listeners took well in the minute"),
        Column("failed", LONG, "messages that listeners failed in the minute"),
        Column(
            "flow_count_ms",
            LONG,
            "for how long of the minute pulls rested since windows held too many messages, summed "
            "over the queues held; null when not reported",
        ),
        Column("flow_bytes_ms", LONG, "the same, since windows held too many bytes"),
        Column("flow_span_ms", LONG, "the same, since too much lay beyond an unfinished message"),
        must("queues_held", INT, "queues of the topic that the client holds, over all brokers"),
        Column("topic_queues", INT, "queues of the topic, when the client divided them last"),
        Column("group_members", INT, "members among which it divided them"),
    ),
)
