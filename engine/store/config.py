"""Settings of the message store, under RocketMQ's own names.

Place in the walk: built once by the broker's configuration, handed to `MessageStore.open`.
Defaults are RocketMQ's (spec: storage section) unless a field says otherwise. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from engine.foundation.errors import ConfigError
from engine.foundation.limits import (
    BODY_BYTES_MAX,
    COMMIT_LOG_FILE_BYTES_DEFAULT,
    COMMIT_LOG_FILE_BYTES_MAX,
)
from engine.foundation.units import DAY_MS, GIB, HOUR_MS, KIB, MINUTE_MS, SECOND_MS


class FlushDiskType(Enum):
    """When a message counts as stored."""

    SYNC_FLUSH = "SYNC_FLUSH"
    """After fdatasync: acknowledged messages survive a power cut. One sync serves every waiter."""
    ASYNC_FLUSH = "ASYNC_FLUSH"
    """After the write into the page cache: acknowledged messages survive SIGKILL, not a power cut."""


DELAY_LEVELS_MS_DEFAULT = tuple(
    [SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS]
    + [minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    + [HOUR_MS, 2 * HOUR_MS]
)


def _setting(default: Any, rocketmq_key: str) -> Any:
    return field(default=default, metadata={"rocketmq": rocketmq_key})


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the store lives and how it behaves. Raises ConfigError for values that cannot work."""

    root: str = field(metadata={"rocketmq": "storePathRootDir"})
    """Folder of the store; made when missing."""
    flush_disk_type: FlushDiskType = _setting(FlushDiskType.ASYNC_FLUSH, "flushDiskType")
    mapped_file_size_commit_log_bytes: int = _setting(
        COMMIT_LOG_FILE_BYTES_DEFAULT, "mappedFileSizeCommitLog"
    )
    mapped_file_size_consume_queue_bytes: int = _setting(
        300_000 * 20, "mappedFileSizeConsumeQueue"
    )
    message_index_enable: bool = _setting(True, "messageIndexEnable")
    max_hash_slot_count: int = _setting(5_000_000, "maxHashSlotNum")
    max_index_count: int = _setting(20_000_000, "maxIndexNum")
    max_message_bytes: int = _setting(BODY_BYTES_MAX, "maxMessageSize")
    flush_interval_commit_log_ms: int = _setting(500, "flushIntervalCommitLog")
    flush_commit_log_least_bytes: int = _setting(4 * 4 * KIB, "flushCommitLogLeastPages")
    flush_commit_log_thorough_interval_ms: int = _setting(
        10 * SECOND_MS, "flushCommitLogThoroughInterval"
    )
    flush_interval_consume_queue_ms: int = _setting(SECOND_MS, "flushIntervalConsumeQueue")
    """Also the rhythm of index and checkpoint."""
    sync_flush_timeout_ms: int = _setting(5 * SECOND_MS, "syncFlushTimeout")
    max_transfer_bytes_in_memory: int = _setting(256 * KIB, "maxTransferBytesOnMessageInMemory")
    max_transfer_count_in_memory: int = _setting(32, "maxTransferCountOnMessageInMemory")
    max_transfer_bytes_in_disk: int = _setting(64 * KIB, "maxTransferBytesOnMessageInDisk")
    max_transfer_count_in_disk: int = _setting(8, "maxTransferCountOnMessageInDisk")
    resident_bytes: int = _setting(8 * GIB, "accessMessageInMemoryMaxRatio")
    """How far behind the end of the log a message is still taken to be in memory. RocketMQ: 40 % of the RAM."""
    max_filter_message_bytes: int = _setting(16_000, "maxFilterMessageSize")
    """Bytes of consume queue one filtered pull looks through: 800 units."""
    file_reserved_time_ms: int = _setting(3 * DAY_MS, "fileReservedTime")
    """Age at which a commit-log file may go, by its last change. RocketMQ counts in hours: 72."""
    delete_when_hours: tuple[int, ...] = _setting((4,), "deleteWhen")
    """Hours of the day (UTC) in which aged files go; a full disk does not wait for them."""
    clean_resource_interval_ms: int = _setting(10 * SECOND_MS, "cleanResourceInterval")
    delete_files_batch_max: int = _setting(10, "deleteFileBatchMax")
    disk_max_used_ratio: float = _setting(0.75, "diskMaxUsedSpaceRatio")
    """Above this, aged files go at any hour."""
    disk_clean_forcibly_ratio: float = _setting(0.85, "diskSpaceCleanForciblyRatio")
    """Above this, the oldest files go whatever their age."""
    disk_warning_ratio: float = _setting(0.90, "diskSpaceWarningLevelRatio")
    """Above this, writes stop as well, until it is lower again."""
    delay_levels_ms: tuple[int, ...] = _setting(DELAY_LEVELS_MS_DEFAULT, "messageDelayLevel")

    def __post_init__(self) -> None:
        """Check each value, then how they fit together."""
        if not 512 <= self.mapped_file_size_commit_log_bytes <= COMMIT_LOG_FILE_BYTES_MAX:
            raise ConfigError(
                "mappedFileSizeCommitLog", self.mapped_file_size_commit_log_bytes,
                f"512 to {COMMIT_LOG_FILE_BYTES_MAX} bytes",
            )
        if self.mapped_file_size_consume_queue_bytes % 20 or (
            self.mapped_file_size_consume_queue_bytes < 20
        ):
            raise ConfigError(
                "mappedFileSizeConsumeQueue", self.mapped_file_size_consume_queue_bytes,
                "a multiple of 20 bytes, one unit",
            )
        if self.max_hash_slot_count < 1 or self.max_index_count < 2:
            raise ConfigError(
                "maxIndexNum", (self.max_hash_slot_count, self.max_index_count),
                "at least 1 slot and 2 entries",
            )
        ratios = (self.disk_max_used_ratio, self.disk_clean_forcibly_ratio, self.disk_warning_ratio)
        if not 0 < ratios[0] <= ratios[1] <= ratios[2] <= 1:
            raise ConfigError(
                "diskMaxUsedSpaceRatio", ratios, "0 < used <= clean forcibly <= warning <= 1"
            )
        if any(not 0 <= hour <= 23 for hour in self.delete_when_hours):
            raise ConfigError("deleteWhen", self.delete_when_hours, "hours of the day, 0 to 23")
        if not self.delay_levels_ms:
            raise ConfigError("messageDelayLevel", self.delay_levels_ms, "at least one level")
