"""Valid ranges of a broker's numbers, and the settings that may change while it runs.

Place in the walk: when settings are read, at the start as well as over the wire: what a running
broker refuses, a restart would not have understood either. A retention of -1 hours would delete
every message at the next hour of deletion.

Invariant: LIVE is the allow-list; whatever is not in it stays until a restart. Absent on purpose:
how values fit together (config). Pure.
"""

from __future__ import annotations

from engine.foundation.errors import ConfigError
from engine.foundation.limits import BODY_BYTES_MAX, PULL_MESSAGES_MAX, QUEUES_PER_TOPIC_MAX
from engine.foundation.live_settings import ANY_WORD, LiveKey
from engine.foundation.units import DAY_MS, HOUR_MS, MIB, MINUTE_MS, SECOND_MS

HOURS_MAX = 10 * 365 * 24
LIVE = {
    "autoCreateTopicEnable": ANY_WORD,
    "autoCreateSubscriptionGroup": ANY_WORD,
    "brokerPermission": LiveKey(2, 6),
    "defaultTopicQueueNums": LiveKey(1, QUEUES_PER_TOPIC_MAX),
    "defaultQueryMaxNum": LiveKey(1, PULL_MESSAGES_MAX),
    "maxMsgsNumBatch": LiveKey(1, PULL_MESSAGES_MAX),
    "longPollingEnable": ANY_WORD,
    "shortPollingTimeMills": LiveKey(1, MINUTE_MS),
    "flushConsumerOffsetInterval": LiveKey(100, DAY_MS),
    "maxMessageSize": LiveKey(1, BODY_BYTES_MAX),
    "fileReservedTime": LiveKey(1, HOURS_MAX),
    "deleteWhen": ANY_WORD,
    "deleteFileBatchMax": LiveKey(1, 1000),
    "cleanResourceInterval": LiveKey(100, DAY_MS),
    "diskMaxUsedSpaceRatio": LiveKey(10, 95),
    "diskSpaceCleanForciblyRatio": LiveKey(10, 98),
    "diskSpaceWarningLevelRatio": LiveKey(10, 99),
    "flushIntervalCommitLog": LiveKey(1, MINUTE_MS),
    "flushCommitLogLeastPages": LiveKey(0, 4096),
    "flushCommitLogThoroughInterval": LiveKey(1, 10 * MINUTE_MS),
    "flushIntervalConsumeQueue": LiveKey(1, MINUTE_MS),
    "flushConsumeQueueLeastPages": LiveKey(0, 4096),
    "flushConsumeQueueThoroughInterval": LiveKey(1, 10 * MINUTE_MS),
    "syncFlushTimeout": LiveKey(100, 60 * SECOND_MS),
    "maxTransferBytesOnMessageInMemory": LiveKey(1, 4 * MIB),
    "maxTransferCountOnMessageInMemory": LiveKey(1, PULL_MESSAGES_MAX),
    "maxTransferBytesOnMessageInDisk": LiveKey(1, 4 * MIB),
    "maxTransferCountOnMessageInDisk": LiveKey(1, PULL_MESSAGES_MAX),
    "maxFilterMessageSize": LiveKey(20, 4 * MIB),
    "useServerSideResetOffset": ANY_WORD,
    "rejectTransactionMessage": ANY_WORD,
    "transactionTimeOut": LiveKey(1, DAY_MS),
    "transactionCheckMax": LiveKey(1, 1000),
    "transactionCheckInterval": LiveKey(1, DAY_MS),
}
"""In RocketMQ's units."""

_JUDGED_BY_CONFIG = (
    *("brokerPermission", "diskMaxUsedSpaceRatio"),
    *("diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"),
)
AT_START: dict[str, tuple[float, float]] = {
    **{
        key: (live.least, live.most)
        for key, live in LIVE.items()
        if live.least is not None and live.most is not None and key not in _JUDGED_BY_CONFIG
    },
    "fileReservedTime": (SECOND_MS / HOUR_MS, HOURS_MAX),
    "channelExpiredTimeout": (SECOND_MS, DAY_MS),
    "commitCommitLogLeastPages": (0, 4096),
    "commitCommitLogThoroughInterval": (1, 10 * MINUTE_MS),
    "flushConsumeQueuesAtOnce": (0, 1_000_000),
    "deleteCommitLogFilesInterval": (0, MINUTE_MS),
}
"""Ranges of numbers, also of those that stay until a restart."""


def check_range(key: str, text: str) -> None:
    """Raise ConfigError for a number that is out of its range; words are judged by their reader."""
    least, most = AT_START.get(key, (None, None))
    try:
        number = float(text)
    except ValueError:
        return
    if least is not None and most is not None and not least <= number <= most:
        raise ConfigError(key, text, f"a number from {least:g} to {most:.15g}")
