"""Message-store settings under RocketMQ's own names.

Place in the walk: built once by the broker's configuration, handed to `MessageStore.open`.
Defaults are RocketMQ's unless a field says otherwise. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from engine.foundation.errors import ConfigError
from engine.foundation.limits import (
    BODY_BYTES_MAX,
    COMMIT_LOG_FILE_BYTES_DEFAULT,
    STORE_FILE_BYTES_MAX,
)
from engine.foundation.units import DAY_MS, GIB, HOUR_MS, KIB, MINUTE_MS, SECOND_MS


class FlushDiskType(Enum):
    """When a message counts as stored."""

    SYNC_FLUSH = "SYNC_FLUSH"
    """After fdatasync: acknowledged messages survive a power cut. One sync serves every waiter."""
    ASYNC_FLUSH = "ASYNC_FLUSH"
    """After the write into the page cache: acknowledged messages survive SIGKILL, not a power
    cut.
    """


DELAY_LEVELS_MS_DEFAULT = tuple(
    [SECOND_MS, 5 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS]
    + [minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    + [HOUR_MS, 2 * HOUR_MS]
)


def _key(rocketmq_key: str) -> dict[str, str]:
    return {"rocketmq": rocketmq_key}


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the store lives and how it behaves. Raises ConfigError for values that cannot work."""

    root: str = field(metadata=_key("storePathRootDir"))
    """Folder of the store; made when missing."""
    commit_log_path: str = field(default="", metadata=_key("storePathCommitLog"))
    """Folder of the commit log, for a disk of its own; empty: `commitlog` below the root."""
    flush_disk_type: FlushDiskType = field(
        default=FlushDiskType.ASYNC_FLUSH, metadata=_key("flushDiskType")
    )
    mapped_file_size_commit_log_bytes: int = field(
        default=COMMIT_LOG_FILE_BYTES_DEFAULT, metadata=_key("mappedFileSizeCommitLog")
    )
    mapped_file_size_consume_queue_bytes: int = field(
        default=300_000 * 20, metadata=_key("mappedFileSizeConsumeQueue")
    )
    message_index_enable: bool = field(default=True, metadata=_key("messageIndexEnable"))
    max_hash_slot_count: int = field(default=5_000_000, metadata=_key("maxHashSlotNum"))
    max_index_count: int = field(default=20_000_000, metadata=_key("maxIndexNum"))
    max_message_bytes: int = field(default=BODY_BYTES_MAX, metadata=_key("maxMessageSize"))
    flush_interval_commit_log_ms: int = field(default=500, metadata=_key("flushIntervalCommitLog"))
    """From the beginning of one flush under ASYNC_FLUSH to that of the next: a power cut loses what
    was written in this time and during one flush.
    """
    flush_commit_log_least_bytes: int = field(default=0, metadata=_key("flushCommitLogLeastPages"))
    """Less than this waits for the thorough interval. RocketMQ's default of 4 pages would let a
    power cut take ten seconds of a quiet topic.
    """
    flush_commit_log_thorough_interval_ms: int = field(
        default=10 * SECOND_MS, metadata=_key("flushCommitLogThoroughInterval")
    )
    transient_store_pool_enable: bool = field(
        default=False, metadata=_key("transientStorePoolEnable")
    )
    """Keep messages in memory until the next commit: SIGKILL loses what waits. ASYNC_FLUSH only."""
    commit_interval_commit_log_ms: int = field(
        default=200, metadata=_key("commitIntervalCommitLog")
    )
    commit_commit_log_least_bytes: int = field(
        default=4 * 4 * KIB, metadata=_key("commitCommitLogLeastPages")
    )
    commit_commit_log_thorough_interval_ms: int = field(
        default=200, metadata=_key("commitCommitLogThoroughInterval")
    )
    flush_interval_consume_queue_ms: int = field(
        default=SECOND_MS, metadata=_key("flushIntervalConsumeQueue")
    )
    """Also the rhythm of index and checkpoint."""
    flush_consume_queue_least_bytes: int = field(
        default=2 * 4 * KIB, metadata=_key("flushConsumeQueueLeastPages")
    )
    """While many queues are written to, those with fewer new bytes wait until all are flushed."""
    flush_consume_queue_thorough_interval_ms: int = field(
        default=60 * SECOND_MS, metadata=_key("flushConsumeQueueThoroughInterval")
    )
    flush_consume_queues_at_once: int = field(default=64, metadata=_key("flushConsumeQueuesAtOnce"))
    """So many written queues, or fewer, are all flushed each time. Ours alone: recovery after a
    crash then reads a second's messages and not a minute's.
    """
    sync_flush_timeout_ms: int = field(default=5 * SECOND_MS, metadata=_key("syncFlushTimeout"))
    max_transfer_bytes_in_memory: int = field(
        default=256 * KIB, metadata=_key("maxTransferBytesOnMessageInMemory")
    )
    max_transfer_count_in_memory: int = field(
        default=32, metadata=_key("maxTransferCountOnMessageInMemory")
    )
    max_transfer_bytes_in_disk: int = field(
        default=64 * KIB, metadata=_key("maxTransferBytesOnMessageInDisk")
    )
    max_transfer_count_in_disk: int = field(
        default=8, metadata=_key("maxTransferCountOnMessageInDisk")
    )
    resident_bytes: int = field(default=8 * GIB, metadata=_key("accessMessageInMemoryMaxRatio"))
    """How far behind the end of the log a message is still taken to be in memory. RocketMQ: 40 % of
    the RAM.
    """
    max_filter_message_bytes: int = field(default=16_000, metadata=_key("maxFilterMessageSize"))
    """Bytes of consume queue one filtered pull looks through: 800 units."""
    file_reserved_time_ms: int = field(default=3 * DAY_MS, metadata=_key("fileReservedTime"))
    """Age at which a commit-log file may go, by its last change. RocketMQ counts in hours: 72."""
    delete_when_hours: tuple[int, ...] = field(default=(4,), metadata=_key("deleteWhen"))
    """Hours of the day (UTC) in which aged files go; a full disk does not wait for them."""
    clean_resource_interval_ms: int = field(
        default=10 * SECOND_MS, metadata=_key("cleanResourceInterval")
    )
    delete_files_interval_ms: int = field(
        default=100, metadata=_key("deleteCommitLogFilesInterval")
    )
    """Pause between two files that go, so that a round does not keep the device busy."""
    delete_files_batch_max: int = field(default=10, metadata=_key("deleteFileBatchMax"))
    disk_max_used_ratio: float = field(default=0.75, metadata=_key("diskMaxUsedSpaceRatio"))
    """Above this, aged files go at any hour. Above the next ratio it means nothing: RocketMQ's
    files often say 88.
    """
    disk_clean_forcibly_ratio: float = field(
        default=0.85, metadata=_key("diskSpaceCleanForciblyRatio")
    )
    """Above this, the oldest files go whatever their age."""
    disk_warning_ratio: float = field(default=0.90, metadata=_key("diskSpaceWarningLevelRatio"))
    """Above this, writes stop as well, until it is lower again."""
    strict_store: bool = field(default=False, metadata=_key("strictStore"))
    """Refuse to open a store with a damaged place below what was synced. Ours alone: RocketMQ cuts
    the log there.
    """
    delay_levels_ms: tuple[int, ...] = field(
        default=DELAY_LEVELS_MS_DEFAULT, metadata=_key("messageDelayLevel")
    )

    @property
    def tables_folder(self) -> str:
        """Folder of the tables kept as JSON."""
        return f"{self.root}/config"

    @property
    def commit_log_folder(self) -> str:
        """Folder of the commit log's files."""
        return self.commit_log_path.rstrip("/") or f"{self.root}/commitlog"

    @property
    def consume_queue_folder(self) -> str:
        """Folder of the consume queues' folders."""
        return f"{self.root}/consumequeue"

    @property
    def index_folder(self) -> str:
        """Folder of the index files."""
        return f"{self.root}/index"

    @property
    def abort_path(self) -> str:
        """The file that stands while the store is open: found at a start, it means a kill."""
        return f"{self.root}/abort"

    def __post_init__(self) -> None:
        """Check each value, then how they fit together."""
        if not self.root:
            raise ConfigError("storePathRootDir", self.root, "the folder of the store")
        if any(char in self.commit_log_path for char in ",;:"):
            raise ConfigError("storePathCommitLog", self.commit_log_path, "one folder")
        if not 512 <= self.mapped_file_size_commit_log_bytes <= STORE_FILE_BYTES_MAX:
            raise ConfigError(
                "mappedFileSizeCommitLog",
                self.mapped_file_size_commit_log_bytes,
                f"512 to {STORE_FILE_BYTES_MAX} bytes",
            )
        if self.mapped_file_size_consume_queue_bytes % 20 or (
            self.mapped_file_size_consume_queue_bytes < 20
        ):
            raise ConfigError(
                "mappedFileSizeConsumeQueue",
                self.mapped_file_size_consume_queue_bytes,
                "a multiple of 20 bytes, one unit",
            )
        if self.mapped_file_size_consume_queue_bytes > STORE_FILE_BYTES_MAX:
            raise ConfigError(
                "mappedFileSizeConsumeQueue",
                self.mapped_file_size_consume_queue_bytes,
                f"at most {STORE_FILE_BYTES_MAX} bytes: positions are signed 32-bit numbers",
            )
        index_bytes = self.max_hash_slot_count * 4 + self.max_index_count * 20 + 40
        if index_bytes > STORE_FILE_BYTES_MAX:
            raise ConfigError(
                "maxIndexNum",
                (self.max_hash_slot_count, self.max_index_count),
                f"slots and entries of a file of at most {STORE_FILE_BYTES_MAX} bytes, "
                f"not {index_bytes}",
            )
        if self.max_hash_slot_count < 1 or self.max_index_count < 2:
            raise ConfigError(
                "maxIndexNum",
                (self.max_hash_slot_count, self.max_index_count),
                "at least 1 slot and 2 entries",
            )
        ratios = {
            "diskMaxUsedSpaceRatio": self.disk_max_used_ratio,
            "diskSpaceCleanForciblyRatio": self.disk_clean_forcibly_ratio,
            "diskSpaceWarningLevelRatio": self.disk_warning_ratio,
        }
        for key, ratio in ratios.items():
            if not 0 < ratio <= 1:
                raise ConfigError(key, ratio, "a share of the disk: above 0, at most 1")
        if self.disk_clean_forcibly_ratio > self.disk_warning_ratio:
            why = f"at most diskSpaceWarningLevelRatio, {self.disk_warning_ratio}"
            raise ConfigError("diskSpaceCleanForciblyRatio", self.disk_clean_forcibly_ratio, why)
        if any(not 0 <= hour <= 23 for hour in self.delete_when_hours):
            raise ConfigError("deleteWhen", self.delete_when_hours, "hours of the day, 0 to 23")
        if self.transient_store_pool_enable and self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            raise ConfigError(
                "transientStorePoolEnable",
                True,
                "false with flushDiskType=SYNC_FLUSH: an answer would wait for bytes that are "
                "only in memory; use ASYNC_FLUSH with the pool",
            )
        if min(self.commit_interval_commit_log_ms, self.flush_interval_commit_log_ms) < 1:
            raise ConfigError(
                "commitIntervalCommitLog",
                (self.commit_interval_commit_log_ms, self.flush_interval_commit_log_ms),
                "intervals of at least 1 ms",
            )
        if not self.delay_levels_ms:
            raise ConfigError("messageDelayLevel", self.delay_levels_ms, "at least one level")
