"""Bronze tables for consumer groups: offsets, marks, redeliveries and failed messages.

Place in the walk: listed by `tables`, which everybody reads. Absent on purpose: the members.
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

CONSUME_OFFSETS: Final = Table(
    "consume_offsets",
    "a report of a consume offset that changed it, lowered it, reset it or was refused",
    (
        GROUP,
        TOPIC,
        QUEUE,
        must("offset", LONG, "reported consume offset: the NEXT message to consume"),
        Column("previous_offset", LONG, "what was stored before; null when nothing was"),
        must(
            "path",
            STRING,
            "COMMIT_RPC, PULL_PIGGYBACK, TRANSACTION, RESET or LOCAL; RESTORE: a broker's life "
            "began with it; OBSERVED: it was higher before, or, not accepted, a member goes on at "
            "it behind TOPIC_MADE_AGAIN; NEW_LIFE: the first of a queue of a topic made again; "
            "PULL, not accepted: a member pulls such a queue from it on, as the first of its group "
            "(previous_offset null) or beyond all that its group has pulled",
        ),
        must("trigger", STRING, "TIMER, SHUTDOWN, HAND_OVER or UNKNOWN, as the client reported"),
        Column(
            "client_id",
            STRING,
            "client that reported; null when it has sent no heartbeat on this connection",
        ),
        must("accepted", BOOLEAN, "was it stored?"),
        Column("min_offset", LONG, "first message the queue still keeps"),
        Column("max_offset", LONG, "next offset to be written in the queue"),
        Column(
            "held_back",
            LONG,
            "of a refused report, how often its client had made it since the row before; null when "
            "it was stored, and of earlier versions",
        ),
    ),
)

GROUP_WATERMARKS: Final = Table(
    "group_watermarks",
    "group, queue and grid second, when changed; all in each snapshot; at once for every queue of "
    "a client that left, expired, was revoked or was reset. Pulls and reports that moved nothing "
    "are a change only while messages wait for the group",
    (
        GROUP,
        TOPIC,
        QUEUE,
        Column(
            "pulled",
            LONG,
            "next offset nobody of the group has pulled; null when nobody has pulled",
        ),
        Column(
            "processed",
            LONG,
            "one past the highest finished offset, as the client reported it; null when it did not",
        ),
        Column("committed", LONG, "consume offset in the broker's memory; null when none"),
        Column("persisted", LONG, "consume offset in the broker's file; null when none"),
        must("committed_state", STRING, "EXACT, AT_END, PURGED, UNREADABLE or NONE"),
        Column(
            "store_time_at_committed",
            TIMESTAMP,
            "store time of the message AT committed, or AT began where there is no consume offset; "
            "null when nothing waits there",
        ),
        must("min_offset", LONG, "first message the queue still keeps"),
        must("max_offset", LONG, "next offset to be written"),
        Column(
            "last_store_time",
            TIMESTAMP,
            "store time of the newest message; null when the queue is empty",
        ),
        Column("last_puller", STRING, "client that pulled last"),
        Column(
            "lock_holder", STRING, "client that holds the queue's order lock; null when unlocked"
        ),
        Column("last_pull_time", TIMESTAMP, "when the group last pulled this queue"),
        Column(
            "last_commit_time",
            TIMESTAMP,
            "when the group last reported an offset for it, changed or not",
        ),
        must(
            "reports",
            LONG,
            "offset reports since the previous row of this key, unchanged ones included",
        ),
        Column(
            "message_model",
            STRING,
            "CLUSTERING or BROADCASTING, as the members say; without members BROADCASTING when the "
            "last of them did, else null",
        ),
        Column("members", INT, "clients of the group known to this broker"),
        Column(
            "store_time_error_ms",
            LONG,
            "how far store_time_at_committed may be off, for an observer that may not read "
            "messages; null when it is that of the very message",
        ),
        Column(
            "members_unknown_reason",
            STRING,
            "why members is null, in words: members may be connected with a proxy that nobody can "
            "ask; null when they are reported, and of brokers that report of themselves",
        ),
        Column(
            "began",
            LONG,
            "where the group began to read the queue, which has no consume offset; null when it "
            "has one, or when nobody knows",
        ),
    ),
)

POP_WATERMARKS: Final = Table(
    "pop_watermarks",
    "group and queue that it reads by POP, of an observed broker, at a look at which it changed; "
    "all in each snapshot",
    (
        GROUP,
        TOPIC,
        QUEUE,
        Column(
            "popped",
            LONG,
            "next offset that was never handed out; null when it lies beyond the end of the queue",
        ),
        must("max_offset", LONG, "next offset to be written"),
        Column(
            "unacknowledged",
            LONG,
            "messages below popped that are handed out: neither acknowledged, nor is their "
            "invisible time over; null when not known",
        ),
        Column(
            "unacknowledged_ranges",
            ColumnType.RANGES,
            "which, as ranges [from, to), the lowest 32; null when not known",
        ),
        Column("handed_out_since", TIMESTAMP, "when the oldest of them was handed out"),
        Column("invisible_ms", LONG, "the invisible time that was asked for last"),
        must(
            "acknowledged", LONG, "acknowledgements since the look before, as far as they are read"
        ),
        must("expired", LONG, "invisible times that ran out since the look before, likewise"),
        Column("unknown_reason", STRING, "why unacknowledged is null, in words"),
    ),
)
REDELIVERIES: Final = Table(
    "redeliveries",
    "pull that starts below what the group had already pulled from that queue",
    (
        GROUP,
        TOPIC,
        QUEUE,
        must("from_offset", LONG, "first offset delivered again"),
        must(
            "to_offset",
            LONG,
            "one past the last offset this answer delivered again; at most the group's pulled mark",
        ),
        Column("client_id", STRING, "who pulls now"),
        Column("previous_client_id", STRING, "who had pulled them"),
        must("broker_epoch_before", LONG, "life of the broker in which they were pulled first"),
        Column(
            "delivered_count",
            LONG,
            "messages of the range that this answer held, after the tag filter",
        ),
    ),
)

RETRY_DLQ_FLOW: Final = Table(
    "retry_dlq_flow",
    "step of a failed message",
    (
        Column(
            "message_id", STRING, "UNIQ_KEY, kept over all retries; null when the producer set none"
        ),
        Column("origin_topic", STRING, "topic the message was first sent to"),
        Column("origin_queue_id", INT, "its queue there, when known"),
        Column("origin_offset", LONG, "its queue offset there, when known"),
        GROUP,
        must("reconsume_times", INT, "failed tries after this step, or hand-outs in vain"),
        must(
            "step",
            STRING,
            "SENT_BACK, SCHEDULED, DELIVERED, LOCAL_RETRY, DEAD_LETTERED, REDRIVEN, DISCARDED or "
            "EXPIRED; SENT_AGAIN: the group was handed a second copy that the producer had sent, "
            "whose queue and offset the row names; INVISIBLE_TIME_EXPIRED: a POP group gets it "
            "once more, as it was not acknowledged in time: no failure",
        ),
        Column(
            "delay_ms",
            LONG,
            "delay until the next delivery; of what came out of a delay level, DELIVERED or given "
            "up there, the one that was over; null when none follows",
        ),
        Column("reason", STRING, "why, in words"),
    ),
)

OFFSET_ANSWERS: Final = Table(
    "offset_answers",
    "answered question of a client where its group is to go on in a queue",
    (
        Column(
            "client_id",
            STRING,
            "client that asked; null when it has sent no heartbeat on this connection",
        ),
        GROUP,
        TOPIC,
        QUEUE,
        Column(
            "told_offset",
            LONG,
            "consume offset of the answer; null: that there is none, so it begins where it is "
            "configured to",
        ),
        Column("committed", LONG, "consume offset in the broker's memory then; null when none"),
        Column(
            "pulled",
            LONG,
            "next offset nobody of the group had pulled then; null when nobody had pulled",
        ),
        Column("last_puller", STRING, "client that had pulled last; null when nobody had pulled"),
    ),
)

REUSED_OFFSETS: Final = Table(
    "reused_offsets",
    "queue whose log lost messages that a group had pulled, and whose offsets were given again: of "
    "them the highest that is known",
    (
        GROUP,
        TOPIC,
        QUEUE,
        must("offset", LONG, "queue offset that the group had pulled, and that was given again"),
        must(
            "queue_end",
            LONG,
            "where the queue ended when its broker began anew: all offsets from there to `offset` "
            "were given again",
        ),
        Column(
            "message_id_before",
            STRING,
            "UNIQ_KEY of the message that was lost; null when its producer set none",
        ),
        Column(
            "message_id",
            STRING,
            "UNIQ_KEY of the message that is there now; null when its producer set none",
        ),
        Column("client_id", STRING, "client that had pulled; null when it had no name"),
    ),
)

UNREAD_DELETIONS: Final = Table(
    "unread_deletions",
    "queue of a group whose messages were deleted by age or for room before the group read them",
    (
        GROUP,
        TOPIC,
        QUEUE,
        must("from_offset", LONG, "first offset that the group had not read, as far as is known"),
        must("to_offset", LONG, "one past the last deleted: the first message the queue keeps"),
        must(
            "unread",
            LONG,
            "how many of them it had not read for certain: to_offset - from_offset, as its broker "
            "reports; 0 where an observer saw only that the group is further now",
        ),
    ),
)
