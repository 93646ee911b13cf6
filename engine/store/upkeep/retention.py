"""Retention: which commit-log files may go, and when the disk is too full to write.

Place in the walk: a timer of `message_store`. `decide` is pure: files, ages, fill ratio in, verdict
out; `Retention` carries it out and lets consume queues and index follow the log.

RocketMQ's rules: aged files go at the hours of deleteWhen, or at any time above
diskMaxUsedSpaceRatio; above the second ratio the oldest go whatever their age; above the third
writing stops as well. Whether anybody consumed the messages does not matter. The newest file always
stays.

Invariant: files go oldest first, at most `delete_files_batch_max` a round. A reader's views of a
deleted file stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.foundation.errors import StorageError
from engine.foundation.observing import LifecycleEvent, Observer
from engine.foundation.units import DAY_MS, HOUR_MS
from engine.runtime import Runtime
from engine.store.commit_log import CommitLog
from engine.store.config import StoreConfig
from engine.store.index import Index
from engine.store.queue_table import QueueTable


@dataclass(frozen=True, slots=True)
class AgedFile:
    """A commit-log file and when it was last written."""

    start: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do now."""

    delete: tuple[int, ...]
    """Starts of the files to delete, oldest first."""
    stop_writes: bool
    reason: str


def decide(
    config: StoreConfig,
    files: Sequence[AgedFile],
    *,
    used_ratio: float,
    now_ms: int,
    by_hand: bool = False,
) -> Verdict:
    """Which of `files` (oldest first, newest last) go now; `by_hand`: whatever the hour is."""
    candidates = list(files[:-1])[: config.delete_files_batch_max]
    stop_writes = used_ratio > config.disk_warning_ratio
    if used_ratio > config.disk_clean_forcibly_ratio:
        doomed = candidates
        reason = f"disk {used_ratio:.0%} full, over {config.disk_clean_forcibly_ratio:.0%}"
    else:
        hour = now_ms % DAY_MS // HOUR_MS
        in_window = hour in config.delete_when_hours
        filling = used_ratio > config.disk_max_used_ratio
        doomed = []
        for file in candidates if in_window or filling or by_hand else []:
            if now_ms - file.modified_ms < config.file_reserved_time_ms:
                break  # Deleting behind a younger file would leave a hole.
            doomed.append(file)
        reason = f"older than {config.file_reserved_time_ms // HOUR_MS} h"
    return Verdict(tuple(file.start for file in doomed), stop_writes, reason)


class Retention:
    """Carries verdicts out."""

    def __init__(
        self,
        runtime: Runtime,
        config: StoreConfig,
        observer: Observer,
        *,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
    ) -> None:
        self._disk = runtime.disk
        self._config = config
        self._observer = observer
        self._log = log
        self._queues = queues
        self._index = index
        self.stop_writes = False
        """Is the disk too full to write?"""

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next round on."""
        self._config = config

    def run(self, now_ms: int, *, by_hand: bool = False) -> int:
        """One round; returns the number of commit-log files deleted.

        `by_hand`: a tool asks for it, so aged files go at once and not at their hour.
        """
        log = self._log
        # A file made ahead counts as the newest, and so keeps the one being written as well.
        begun = [start for start in log.files.starts if start < log.end_offset]
        try:
            files = [
                AgedFile(start, self._disk.modified_ms(log.files.path_of(start))) for start in begun
            ]
            used_ratio = self._disk.used_ratio(self._config.root)
        except StorageError as error:
            self._observer.observe(LifecycleEvent("DAMAGED_FILE", f"retention: {error}"))
            return 0
        verdict = decide(self._config, files, used_ratio=used_ratio, now_ms=now_ms, by_hand=by_hand)
        self._switch_writes(stop=verdict.stop_writes, used_ratio=used_ratio)
        for start in verdict.delete:
            log.files.remove(start)
        if verdict.delete:
            log.folder_dirty = True
            log.set_min()
            self.follow_log()
            self._observer.observe(
                LifecycleEvent(
                    "RETENTION",
                    f"{len(verdict.delete)} commit-log files before {log.min_offset} deleted: "
                    f"{verdict.reason}",
                )
            )
        return len(verdict.delete)

    def _switch_writes(self, *, stop: bool, used_ratio: float) -> None:
        if stop and not self.stop_writes:
            self._observer.observe(
                LifecycleEvent("DISK_FULL", f"disk {used_ratio:.1%} full, writes are refused")
            )
        self.stop_writes = stop

    def follow_log(self) -> None:
        """Let consume queues and index drop what the log no longer holds."""
        for queue in self._queues.all():
            queue.follow_log(self._log.min_offset)
        if self._index is not None:
            self._index.follow_log(self._log.min_offset)
