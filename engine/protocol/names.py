"""Topic and group name rules, permission and flag bits, and POP retry-topic names.

    %RETRY%group+topic    of POP, V2 (enableRetryTopicV2)
    %RETRY%group_topic    of POP, V1: a name of either may hold the sign as well

Neither a group nor a topic may be named with a plus sign, so a V2 name says it alone. Of a V1 name
either the copy (ORIGIN_GROUP) or a group that reads the topic says it.

Invariant: a name that passed `check_topic` or `check_group` cannot leave the store's folder: no
dots, no slashes. One that passed `check_broker_word` has dots, but is no step to a folder above. A
retry topic that several groups could have made belongs to none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntFlag
from typing import Final, NamedTuple

from engine.foundation.errors import RequestRefused
from engine.foundation.limits import GROUP_CHARS_MAX, RETRY_TOPIC_CHARS_MAX, TOPIC_CHARS_MAX
from engine.protocol.codes import ResponseCode

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
AUTO_CREATE_TOPIC: Final = "TBW102"
CLIENT_CLOCK_PROPERTY: Final = "PROP_CLIENT_CLOCK"
"""Where our own clients say what their clock shows, in ms since 1970, when they say what they hold.
"""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages that wait for any moment, in its queue 0."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SYSTEM_PREFIX: Final = "rmq_sys_"
TABLES_TOPIC: Final = "rmq_sys_group_tables"
"""Ours: what the brokers of a Raft group agree on beside messages, as records of their log."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

HALF_GONE_REMARK: Final = "Find prepared transaction message failed"
HALF_GROUP_WRONG_REMARK: Final = "The producer group wrong"
HALF_OFFSET_WRONG_REMARK: Final = "The transaction state table offset wrong"
HALF_ID_WRONG_REMARK: Final = "The message id wrong"
"""How brokers begin their refusal of an END_TRANSACTION that fits no half message: its code,
SYSTEM_ERROR, is that of any failure, so clients go by these words.
"""
NO_MESSAGE_REMARK: Final = "no message begins at physical offset"
"""The same, where accounts are checked: our gate looks for the message before any handler does."""

SYSTEM_TOPICS: Final = (
    *(AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, OP_HALF_TOPIC),
    *(CHECK_MAX_TIME_TOPIC, TRACE_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC),
)
FORBIDDEN_TO_CLIENTS: Final = frozenset(
    (
        *(SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC),
        *(SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TABLES_TOPIC),
    )
)
"""Topics the broker alone may write."""

MASTER_ID: Final = 0
"""Number of the master among the instances of one broker name."""

_REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_BROKER_WORD = re.compile(r"(?!\.{1,2}$)[^\s/\\\x00-\x20\x7f]+")
_BROKER_WORD_BYTES_MAX: Final = 255
"""A longer name is no file name."""


class Perm(IntFlag):
    """What may be done with a topic's queues."""

    INHERIT = 1
    WRITE = 2
    READ = 4


PERM_WRITE: Final = int(Perm.WRITE)
PERM_READ: Final = int(Perm.READ)
"""Plain numbers for hot places: the flag's own `&` costs a microsecond."""


class SysFlag(IntFlag):
    """Bits of a message's sysFlag."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


COMPRESSION_BITS: Final = 0x700
TRANSACTION_BITS: Final = 0xC
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
"""Where delayed messages and halves of transactions wait under another topic's name."""


class PullSysFlag(IntFlag):
    """Bits of a pull's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


DEDUPLICATION_FLAG: Final = 1 << 16
"""Bit of a topic's sysFlag in routes: the broker stores each message of the topic once, so who does
not know what became of a message sends it to that broker again. Ours; name servers hand it on, and
RocketMQ's own bits are the lowest two.
"""


def retry_topic(group: str) -> str:
    """Topic that holds a group's failed messages until they are tried again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Topic that holds a group's messages that failed for good."""
    return DLQ_PREFIX + group


def reply_topic(cluster_name: str) -> str:
    """Topic that keeps the replies of request and reply."""
    return cluster_name + _REPLY_SUFFIX


def is_reply_topic(topic: str) -> bool:
    """Does it keep some cluster's replies?"""
    return topic.endswith(_REPLY_SUFFIX)


def is_retry_topic(topic: str) -> bool:
    """Is it some group's retry topic?"""
    return topic.startswith(RETRY_PREFIX)


def check_no_own_dead_letters(group: str, topic: str) -> None:
    """Raise RequestRefused for a group that would consume its own dead letters: one that fails
    again would go back to where it came from, for ever.
    """
    if topic == dlq_topic(group):
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"group {group} does not consume its own dead letters in {topic}: re-drive them, or "
            "consume them by another group",
        )


def is_dlq_topic(topic: str) -> bool:
    """Is it some group's dead-letter topic?"""
    return topic.startswith(DLQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Does the broker own it?"""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def check_topic(topic: str) -> None:
    """Raise RequestRefused when `topic` is no legal name, saying which rule it breaks."""
    longest = (
        RETRY_TOPIC_CHARS_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_CHARS_MAX
    )
    _check("topic", topic, longest)


def check_group(group: str) -> None:
    """Raise RequestRefused when `group` is no legal name, saying which rule it breaks."""
    _check("group", group, GROUP_CHARS_MAX)


def is_legal_topic(topic: str) -> bool:
    """Would `check_topic` pass it?"""
    try:
        check_topic(topic)
    except RequestRefused:
        return False
    return True


def check_broker_word(kind: str, name: str) -> None:
    """Raise RequestRefused when `name` is none that a broker or cluster may have: one that passed
    is also a folder's name, and stays in the folder above.
    """
    is_word = _BROKER_WORD.fullmatch(name) is not None and len(name) <= TOPIC_CHARS_MAX
    if not is_word or len(name.encode("utf-8", "replace")) > _BROKER_WORD_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the {kind} {name[:TOPIC_CHARS_MAX]!r} is no word of at most {TOPIC_CHARS_MAX} "
            "characters without spaces and slashes",
        )


def check_producer_group(group: str) -> None:
    """As `check_group`; producers have no retry topic, so their groups may be as long as topics."""
    _check("producer group", group, RETRY_TOPIC_CHARS_MAX)


def _check(kind: str, name: str, longest: int) -> None:
    if not name or name.isspace():
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the specified {kind} is blank")
    if len(name) > longest:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the specified {kind} is {len(name)} characters long, at most {longest} are allowed",
        )
    if not _LEGAL.fullmatch(name):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the specified {kind} {name!r} contains illegal characters, "
            "allowed are ^[%|a-zA-Z0-9_-]+$",
        )


V1_SEPARATOR: Final = "_"
V2_SEPARATOR: Final = "+"


class PopRetryTopic(NamedTuple):
    """The group and the topic whose messages such a topic holds."""

    group: str
    topic: str
    """Where they were first; it may be a retry topic of another name itself."""


def pop_retry_topic(group: str, topic: str, *, is_v2: bool = False) -> str:
    """The topic into which messages of `topic` go whose invisible time ran out for `group`."""
    return f"{RETRY_PREFIX}{group}{V2_SEPARATOR if is_v2 else V1_SEPARATOR}{topic}"


def pop_retry_of(topic: str, groups: Iterable[str] = ()) -> PopRetryTopic | None:
    """Group and topic of a POP retry topic; None when it is none, or could be of several.

    `groups`: those that may own it, such as all that read it. One of the name behind the prefix is
    no POP group: it is its own retry topic.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    rest = topic.removeprefix(RETRY_PREFIX)
    group, separator, origin = rest.partition(V2_SEPARATOR)
    if separator:
        return PopRetryTopic(group, origin) if group and origin else None
    owners = {
        one
        for one in groups
        if one == rest or (one and rest.startswith(one + V1_SEPARATOR) and len(one) + 1 < len(rest))
    }
    if len(owners) != 1:
        return None
    (owner,) = owners
    return None if owner == rest else PopRetryTopic(owner, rest[len(owner) + 1 :])
