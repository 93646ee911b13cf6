"""Deletes expired commit-log files, and stops writes when the disk is too full.

Place in the walk: a timer of `message_store`. `decide` is pure: files, ages, fill ratio in, verdict
out; `Retention` carries it out and lets consume queues and index follow the log.

RocketMQ's rules: aged files go at the hours of deleteWhen, or at any time above
diskMaxUsedSpaceRatio; above the second ratio the oldest go whatever their age; above the third
writing stops as well. The hours are those of the machine's local time, and the ratio is that of the
fullest of the volumes that log, consume queues and index lie on: they may be several. What lies
`beside` them is measured and reported when it is full; no message goes for it. Whether anybody
consumed the messages does not matter; a listener of `on_purged` may report the groups that had not.
The newest file always stays.

Invariant: files go oldest first, at most `delete_files_batch_max` a round, a pause between two, and
none before it is dispatched. A reader's views of a deleted file stay valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.foundation.errors import DiskFull, StorageError
from engine.foundation.observing import LifecycleEvent, Observer
from engine.foundation.units import HOUR_MS, SECOND_MS
from engine.runtime import Runtime
from engine.store.commit_log import NO_END, CommitLog
from engine.store.config import StoreConfig
from engine.store.index.index import Index
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.upkeep.checkpoint import CheckpointFile

HOURS_A_DAY = 24

Purged = Mapping[QueueKey, tuple[int, int]]
"""(topic, queue_id) → [first queue offset that went, first one that is left)"""


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
    local_hour: int,
    skipped_hours: Collection[int] = (),
    by_hand: bool = False,
    fullest: str = "",
) -> Verdict:
    """Which of `files` (oldest first, newest last) go now; `by_hand`: whatever the hour is.
    `used_ratio` is that of the `fullest` folder; `skipped_hours` are those of `hours_skipped`.
    """
    candidates = list(files[:-1])[: config.delete_files_batch_max]
    stop_writes = used_ratio > config.disk_warning_ratio
    if used_ratio > config.disk_clean_forcibly_ratio:
        doomed = candidates
        of = f" of {fullest}" if fullest else ""
        reason = f"disk{of} {used_ratio:.0%} full, over {config.disk_clean_forcibly_ratio:.0%}"
    else:
        hours = (local_hour, *skipped_hours)
        in_window = any(hour in config.delete_when_hours for hour in hours)
        filling = used_ratio > config.disk_max_used_ratio
        doomed = []
        for file in candidates if in_window or filling or by_hand else []:
            if now_ms - file.modified_ms < config.file_reserved_time_ms:
                break  # Deleting behind a younger file would leave a hole.
            doomed.append(file)
        reason = f"older than {config.file_reserved_time_ms // HOUR_MS} h"
    return Verdict(tuple(file.start for file in doomed), stop_writes, reason)


def hours_skipped(local_hour: Callable[[int], int], now_ms: int) -> list[int]:
    """Hours of the day that the last hour has passed over: in the night in which summer time begins
    there is none of two o'clock, and what is due then is due in the hour that follows.
    """
    before = local_hour(now_ms - HOUR_MS)
    gone_on = (local_hour(now_ms) - before) % HOURS_A_DAY
    if gone_on > HOURS_A_DAY // 2:  # The clock went back; nothing was passed over.
        return []
    return [(before + step) % HOURS_A_DAY for step in range(1, gone_on)]


def message_folders(config: StoreConfig) -> list[str]:
    """Where messages and what is derived from them lie; each may be a volume of its own."""
    return [config.commit_log_folder, config.consume_queue_folder, config.index_folder]


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
        checkpoint: CheckpointFile,
        dispatched: Callable[[], int],
    ) -> None:
        """`dispatched` returns up to which physical offset the log was dispatched."""
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._config = config
        self._observer = observer
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatched = dispatched
        self.on_doomed: Callable[[int], Iterable[None]] = _no_steps
        """Called with the log's next min offset, before a file goes: what is below can be read yet.
        What it returns is done step by step.
        """
        self.on_purged: Callable[[Purged], None] = _ignore
        """Called with what each queue lost, after files went."""
        self.is_paused = False
        """Does no file go, because the log is being cut?"""
        self.stop_writes = False
        """Is the disk too full to write?"""
        self.fullest = config.commit_log_folder
        """Of the folders with messages, that whose volume was the fullest at the last look."""
        self.beside: tuple[str, ...] = (config.root,)
        """Folders whose volumes are measured too, though no message lies there."""
        self._full_beside: frozenset[str] = frozenset()
        self.needed_from: Callable[[], int] = lambda: NO_END
        """From where on the log is needed by whoever follows it: those files stay."""

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next round on."""
        self._config = config

    async def run_forever(self) -> None:
        """Rounds while the store is open, deleting beside the loop: a gigabyte takes 50 ms."""
        while True:
            await asyncio.sleep(self._config.clean_resource_interval_ms / SECOND_MS)
            pause_ms = self._config.delete_files_interval_ms
            await self.run(self._clock.wall_ms(), pause_ms=pause_ms)

    async def run(self, now_ms: int, *, by_hand: bool = False, pause_ms: int = 0) -> int:
        """One round; returns the number of commit-log files that were due. They go at once, or with
        `pause_ms` after each.

        `by_hand`: a tool asks for it, so aged files go at once and not at their hour.
        """
        verdict = self._judge(now_ms, by_hand=by_hand)
        rounds = [(start,) for start in verdict.delete] if pause_ms else [verdict.delete]
        for starts in rounds:
            for _ in self._announce_doomed(starts):
                await asyncio.sleep(0)
            if self._note_begin(starts):
                await self._disk.off_loop(self._checkpoint.sync)
            await self._disk.off_loop(self._let_go(starts, verdict.reason))
            await asyncio.sleep(pause_ms / SECOND_MS)
        return len(verdict.delete)

    def _judge(self, now_ms: int, *, by_hand: bool) -> Verdict:
        log = self._log
        # A file made ahead counts as the newest, and so keeps the one being written as well.
        begun = [start for start in log.files.starts if start < log.end_offset]
        try:
            files = [
                AgedFile(start, self._disk.modified_ms(log.files.path_of(start))) for start in begun
            ]
            used_ratio, fullest = self._fullest()
        except StorageError as error:
            self._observer.observe(LifecycleEvent("DAMAGED_FILE", f"retention: {error}"))
            return Verdict((), self.stop_writes, "unknown")
        verdict = decide(
            self._config,
            files,
            used_ratio=used_ratio,
            now_ms=now_ms,
            local_hour=self._clock.local_hour(now_ms),
            skipped_hours=hours_skipped(self._clock.local_hour, now_ms),
            by_hand=by_hand,
            fullest=fullest,
        )
        self.fullest = fullest
        self._switch_writes(stop=verdict.stop_writes, used_ratio=used_ratio)
        if not verdict.stop_writes:
            self._report_full_beside()
        needed_from = min(self._dispatched(), self.needed_from())
        ended = [start for start in verdict.delete if start + log.file_size_bytes <= needed_from]
        return replace(verdict, delete=tuple(ended))

    def _fullest(self) -> tuple[float, str]:
        """How full the fullest folder with messages is, and which it is. Raises StorageError."""
        folders = message_folders(self._config)
        there = [one for one in folders if self._disk.exists(one)] or folders[:1]
        return max(((self._disk.used_ratio(one), one) for one in there), key=lambda pair: pair[0])

    def _report_full_beside(self) -> None:
        """Report once each folder beside the messages whose volume has become too full."""
        full = {}
        for folder in self.beside:
            try:
                used_ratio = self._disk.used_ratio(folder) if self._disk.exists(folder) else 0.0
            except StorageError as error:
                self._observer.observe(LifecycleEvent("DAMAGED_FILE", f"retention: {error}"))
                continue
            if used_ratio > self._config.disk_warning_ratio:
                full[folder] = used_ratio
        for folder in sorted(full.keys() - self._full_beside):
            detail = f"disk of {folder} {full[folder]:.1%} full; no message goes for it"
            self._observer.observe(LifecycleEvent("DISK_FULL", detail))
        self._full_beside = frozenset(full)

    def _announce_doomed(self, starts: Sequence[int]) -> Iterable[None]:
        """Announce what goes with these files, in steps."""
        doomed = [start for start in starts if self._log.files.has(start)]
        return self.on_doomed(max(doomed) + self._log.file_size_bytes) if doomed else ()

    def _note_begin(self, doomed: Sequence[int]) -> bool:
        """Have the checkpoint say where the log begins without these files, so that nobody misses
        what goes; is it to be synced before they do? On a full disk room comes first.
        """
        kept = [start for start in self._log.files.starts if start not in doomed]
        if not kept or len(kept) == len(self._log.files.starts):
            return False
        self._checkpoint.value.log_begin = kept[0]
        try:
            self._checkpoint.write()
        except DiskFull:
            return False
        return True

    def _let_go(self, starts: Sequence[int], reason: str) -> Callable[[], None]:
        """Forget the files and report it; what is returned deletes them from the disk."""
        log = self._log
        going = [] if self.is_paused else [start for start in starts if log.files.has(start)]
        destroy = [log.files.take_out(start) for start in going]
        if destroy:
            log.folder_dirty = True
            log.set_min()
            detail = f"{len(destroy)} commit-log files before {log.min_offset} deleted: {reason}"
            self._observer.observe(LifecycleEvent("RETENTION", detail))
            self.follow_log()

        def work() -> None:
            for each in destroy:  # Oldest first: a crash in between must leave no hole.
                each()

        return work

    def _switch_writes(self, *, stop: bool, used_ratio: float) -> None:
        if stop and not self.stop_writes:
            detail = f"disk of {self.fullest} {used_ratio:.1%} full, writes are refused"
            self._observer.observe(LifecycleEvent("DISK_FULL", detail))
        self.stop_writes = stop

    def follow_log(self) -> None:
        """Let consume queues and index drop what the log no longer holds."""
        purged = self._queues.follow_log(self._log.min_offset)
        if self._index is not None:
            self._index.follow_log(self._log.min_offset)
        if purged:
            self.on_purged(purged)


def _ignore(what: object) -> None:
    del what


def _no_steps(_physical_min: int) -> Iterable[None]:
    return ()
