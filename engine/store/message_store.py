"""Message store that puts, gets and queries messages with durability guarantees.

Place in the walk: `handlers/send` puts, waits for `when_flushed`, answers; `handlers/pull` gets;
long polls are notified of arrivals; `handlers/query`, tools and the telemetry's watermarks ask.
`MessageStore.open` recovers whatever the last process left (`life_cycle`).

What an answer may promise:

    ASYNC_FLUSH  `put` returned: the message survives SIGKILL of this process; its bytes are in the
                 page cache. With the transient pool only from its next commit on (200 ms).
    SYNC_FLUSH   the future of `when_flushed` gave True: it survives a power cut; its bytes, and
                 its file's name, were synced.

Invariant: a queue offset names one message for ever; survivors of any crash are a prefix of the
log; one process at a time has the folder. A failed sync ends writing, a full disk suspends it,
reads always go on. A question writes nothing, waits for nothing and moves no offset; what is
unknown is None, never 0.
Absent on purpose: topics' settings, subscriptions, replication, transactions' meaning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from engine.foundation.errors import DiskFull, RecordTooLarge, WritesStopped
from engine.foundation.limits import INDEX_FILL_BYTES, INDEX_FILL_RECORDS
from engine.foundation.observing import Observer
from engine.protocol.hashes import index_key_hash
from engine.runtime import Runtime
from engine.store import queue_times
from engine.store.commit_log import NO_END, SIZE_KEY
from engine.store.config import FlushDiskType, StoreConfig
from engine.store.consume_queue import Unit
from engine.store.dispatch import Arrival
from engine.store.holes import Holes
from engine.store.index.index import KeyQueryResult
from engine.store.life_cycle import StoreLifeCycle, make_folders
from engine.store.log_states import LogState
from engine.store.log_walk import CheckedRecords
from engine.store.queue_table import QueueKey, QueueMarks
from engine.store.reading import GetLimits, GetResult, GetStatus, read_queue
from engine.store.record_reading import DispatchRequest, store_timestamp_of
from engine.store.record_writing import BatchDraft, DraftRecord, MessageDraft, PutResult
from engine.store.sound_records import Copied, copied_entries, readable_record_at
from engine.store.tombstones import NO_READERS, EarlierReaders
from engine.store.upkeep.flush import GroupCommit

_log = logging.getLogger(__name__)


class MessageStore:
    """One store folder, opened."""

    def __init__(self, runtime: Runtime, life: StoreLifeCycle, config: StoreConfig) -> None:
        """Use `open`."""
        self._life = life
        self._config = config
        self._clock = runtime.clock
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.store_id = life.store_id
        """What distinguishes this store's tables from those of others."""
        self.tombstones = life.tombstones
        self.epochs = life.epochs
        self.replicated_end: int | None = None
        """Behind the last byte that replicas have; None: there is none, or none has said so."""
        self.put_refusal: Callable[[], str | None] | None = None
        """Why nothing may be put now, in words; what another log holds is appended all the same."""
        self.on_put: Callable[[int], None] | None = None
        """Called with the log's new end in the step of each put; whoever agrees on the log with
        others names it.
        """
        self.on_appended: Callable[[Sequence[DispatchRequest]], None] | None = None
        """Called with the records of another log, in the step in which they are appended."""
        self._deleted = life.tombstones.ends
        self._log = life.log
        self._queues = life.queues
        self._index = life.index
        self._dispatcher = life.dispatcher
        self._dispatching = life.dispatching
        self._flusher = life.flusher
        self._committer = life.committer
        self._deletion = life.deletion
        self._truncation = life.truncation
        self.retention = life.retention

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        config: StoreConfig,
        observer: Observer,
        *,
        visible_end: int = NO_END,
    ) -> MessageStore:
        """Take the folder, recover, report; nothing shows that ends beyond `visible_end`.

        Raises StorageError when another process has it, ConfigError for file sizes that the store
        was not made with.
        """
        make_folders(runtime, config)
        life = StoreLifeCycle(runtime, config, observer)
        life.log.visible_end = visible_end
        try:
            await life.recover()
        except BaseException:
            life.release()
            raise
        return cls(runtime, life, config)

    def change_settings(self, config: StoreConfig) -> None:
        """Go by `config` from the next flush, read and retention round on.

        Sizes of files, folders and the flush mode are as they were opened.
        """
        self._config = config
        self._life.change_settings(config)

    def start(self) -> None:
        """Begin flushing and retention in the background."""
        self._life.start()

    async def failed(self) -> None:
        """Return never, while the disk is sound; raise WritesStopped when a sync has failed."""
        await self._life.failed()

    async def close(self) -> None:
        """Stop cleanly: flush all, save the checkpoint, remove the abort file. Idempotent."""
        await self._life.close()

    # ---- writing ----------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Would a put be tried?

        False after a failed sync, while the disk is too full or the log is cut, after close.
        """
        if self._flusher.failure is not None or self._life.closed or self._truncation.under_way:
            return False
        return not self.retention.stop_writes

    @property
    def has_failed(self) -> bool:
        """Is nothing written any more, until it is opened again?"""
        return self._flusher.failure is not None or self._life.closed

    def put(self, draft: MessageDraft, *, room_bytes: int = 0) -> PutResult:
        """Append one message; it is in the page cache when this returns.

        `room_bytes`: how much longer further copies of it may be; they must fit a file, too. Raises
        WritesStopped (after a failed sync, too full a disk, close), DiskFull (nothing was stored;
        works again once there is room), StorageError, LocalProtocolError for a draft that no record
        can hold, RecordTooLarge among them.
        """
        record, queues, log = DraftRecord(draft), self._queues, self._log
        self._check_fits(record.size_bytes, room_bytes)
        queue_offset, stored_ms = self._begin(draft)
        placed_at = queue_offset if record.takes_queue_offset else 0
        try:
            place = log.place_for(record.size_bytes)
            log.append(record.encode(placed_at, place, stored_ms))
        except DiskFull as error:
            self._flusher.report_disk_full(error)
            raise
        if record.takes_queue_offset:
            queues.advance(draft.topic, draft.queue_id, queue_offset + 1)
        dispatcher = self._dispatcher
        dispatcher.enqueue(record.request(placed_at, place, stored_ms, dispatcher.delay_levels_ms))
        self._appended(stored_ms)
        if self.on_put is not None:
            self.on_put(log.end_offset)
        size_bytes = record.size_bytes
        return PutResult(placed_at, place, size_bytes, stored_ms, place + size_bytes)

    def _check_fits(self, size_bytes: int, room_bytes: int) -> None:
        """Files so small that the room would be more than an eighth of them give no more. Hot."""
        length_max = self._log.record_bytes_max
        if size_bytes + room_bytes > length_max:
            room_bytes = min(room_bytes, length_max // 8)
            if size_bytes + room_bytes > length_max:
                copies = f" and {room_bytes} reserved for its further copies" if room_bytes else ""
                raise RecordTooLarge(
                    f"a record of {size_bytes} bytes with the broker's own{copies} cannot fit "
                    f"into commit-log files of {self._log.file_size_bytes} bytes; raise {SIZE_KEY}"
                )

    def new_batch(self) -> BatchDraft:
        """A batch to add messages to, for `put_batch`."""
        return BatchDraft(self._dispatcher.delay_levels_ms)

    def put_batch(
        self, drafts: Sequence[MessageDraft] | BatchDraft, *, room_bytes: int = 0
    ) -> list[PutResult]:
        """Append messages for one queue as one write: all of them or none, offsets in a row. A
        `BatchDraft` is put once.

        A batch lies in one commit-log file, as RocketMQ's does; one longer than a file is put
        message by message. Raises what `put` raises.
        """
        if isinstance(drafts, BatchDraft):
            batch = drafts
        else:
            batch = self.new_batch()
            for draft in drafts:
                batch.add(draft)
        if not batch:
            return []
        self._check_fits(batch.longest_bytes, room_bytes)
        if batch.size_bytes > self._log.record_bytes_max:
            return [self.put(draft) for draft in batch.drafts]
        first = batch.first
        queue_offset, stored_ms = self._begin(first)
        try:
            placed = batch.place(queue_offset, self._log.place_for(batch.size_bytes), stored_ms)
            self._log.append(placed.encoded)
        except DiskFull as error:
            self._flusher.report_disk_full(error)
            raise
        self._queues.advance(first.topic, first.queue_id, placed.next_queue_offset)
        self._dispatcher.enqueue_all(placed.requests)
        self._appended(stored_ms)
        if self.on_put is not None:
            self.on_put(self._log.end_offset)
        return placed.results

    def append_at(
        self, offset: int, data: bytes | memoryview, *, more_follows: bool = False
    ) -> int:
        """Append what another store's log holds from `offset` on; returns the end of the last whole
        entry: what is behind it is to be given again, together with the rest of its entry. Where
        more follows at once, dispatch waits until it has come.

        Raises OffsetOutOfRange when the log does not end at `offset`, CorruptRecord for bytes that
        no log can hold there, and what `put` raises. DiskFull: whole entries may be stored.
        """
        if not self.writable:
            raise WritesStopped(self._life.why_not_writable())
        log, data = self._log, bytes(data)
        begin, copied = log.end_offset, self._copied(data, offset)
        try:
            log.append_at(offset, memoryview(data)[: copied.size_bytes])
        except DiskFull as error:
            self._flusher.report_disk_full(error)
            raise
        finally:
            stored_bytes = log.end_offset - begin
            if stored_bytes < copied.size_bytes:
                copied = self._copied(data[:stored_bytes], offset)
            self._take_over(copied, more_follows=more_follows)
        return log.end_offset

    def _copied(self, data: bytes, offset: int) -> Copied:
        return copied_entries(
            data,
            offset,
            file_size_bytes=self._log.file_size_bytes,
            delay_levels_ms=self._dispatcher.delay_levels_ms,
            with_requests=self.on_appended is not None,
        )

    def _take_over(self, copied: Copied, *, more_follows: bool) -> None:
        """These records of another log are in this one."""
        if copied.stored_ms is None:
            return
        for key, next_offset in copied.next_offsets.items():
            self._queues.advance(*key, next_offset)
        self._dispatcher.enqueue_all(copied.requests)
        self._appended(copied.stored_ms, more_follows=more_follows)
        if self.on_appended is not None:
            self.on_appended(copied.requests)

    def _begin(self, draft: MessageDraft) -> tuple[int, int]:
        """The queue offset and the store time that the next message of its queue gets. Hot."""
        if not self.writable:
            raise WritesStopped(self._life.why_not_writable())
        if self.put_refusal is not None and (reason := self.put_refusal()) is not None:
            raise WritesStopped(reason)
        if self._deletion.under_way and draft.topic in self._deletion.under_way:
            raise WritesStopped(f"topic {draft.topic} is being deleted; try again")
        queue_offset = self._queues.next_offset(draft.topic, draft.queue_id)
        return queue_offset, max(self._clock.now_ms(), self._flusher.last_store_time_ms)

    def _appended(self, stored_ms: int, *, more_follows: bool = False) -> None:
        """Messages are in the log; have them flushed or dispatched. Hot."""
        self._flusher.last_store_time_ms = stored_ms
        if self._sync_flush:
            self._flusher.wake()  # Also for those nobody waits for: readers see what is flushed.
        elif more_follows:
            self._dispatching.plan_later()
        elif not self._dispatching.planned:
            self._dispatching.plan()

    def when_flushed(self, end_offset: int) -> GroupCommit | None:
        """Outcome of the sync that makes the log durable up to `end_offset`; None when there is
        nothing to wait for (durable already, or ASYNC_FLUSH).

        Shared by all who wait for the same sync: do not cancel it. False: not confirmed within
        sync_flush_timeout_ms, or the sync failed; the message is stored, its durability unknown
        (FLUSH_DISK_TIMEOUT).
        """
        return self._flusher.when_flushed(end_offset)

    async def flush(self) -> None:
        """Have everything put so far synced, whatever the flush mode; `physical_flushed` says how
        far that went. Never raises: after a failed sync, or one that takes longer than
        sync_flush_timeout_ms, it stays behind.
        """
        end_offset = self._log.end_offset
        if self._config.transient_store_pool_enable:
            self._committer.commit("GROUP")
        synced = self._flusher.sync_wanted(end_offset)
        if synced is not None and not self._life.tasks.begun:
            await self._flusher.flush_log("GROUP")
        elif synced is not None:
            await asyncio.shield(synced)

    async def delete_topic(
        self,
        topic: str,
        forget: Callable[[], Iterable[None]] = lambda: (),
        readers: EarlierReaders = NO_READERS,
        *,
        end_offset: int | None = None,
    ) -> int:
        """Delete the topic, durably: its queues, and its messages for whoever asks; returns how
        many queues. Made again, it begins at 0, and what was there before never shows again.
        `end_offset`: what lies behind that place of the log is of the topic made again; None:
        nothing is.

        `forget` is called in the step from which on nothing of it shows; what it returns is done
        step by step, and nothing is put into the topic until that, and the deletion of its files,
        has ended. Raises DiskFull, StorageError: then nothing has changed, or, when it is files
        that cannot be removed, nothing is put until the topic was deleted again. The tombstone
        names `readers`, the groups that read the topic.
        """
        return await self._deletion.delete(topic, forget, readers, end_offset=end_offset)

    async def truncate(self, end_offset: int) -> None:
        """Cut the log at `end_offset`, the end of an entry, with queues and index, durably; see
        `truncation`. From the call on nothing is put, and who waits for a sync learns that its
        outcome is unknown.

        Raises OffsetOutOfRange, WritesStopped, DiskFull: then nothing has changed. StorageError:
        the store writes no more.
        """
        await self._truncation.to(end_offset)

    async def begin_at(self, offset: int) -> None:
        """Let a log that holds nothing begin at `offset`, durably, to be copied from there.

        Raises OffsetOutOfRange when it holds anything, or no file begins there; DiskFull,
        StorageError.
        """
        await self._truncation.begin_at(offset)

    async def follow(self, state: LogState) -> None:
        """Have `state` follow the log from where it was applied: see `log_states`. Raises
        OffsetOutOfRange when the log begins behind that.
        """
        await self._life.states.follow(state)

    def on_cut(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with the log's new end, in the step in which it is cut there."""
        self._truncation.on_cut.append(callback)

    def refuse_puts_to(self, topic: str) -> None:
        """Put nothing into the topic until it was deleted, or `allow_puts_to` was called. Raises
        StorageError when it cannot be deleted, because there are too many.
        """
        self._deletion.check_room(topic)
        self._deletion.under_way[topic] = None

    def allow_puts_to(self, topic: str) -> None:
        """The topic is not deleted after all."""
        self._deletion.under_way.pop(topic, None)

    def is_being_deleted(self, topic: str) -> bool:
        """Is nothing put into the topic, because its deletion has not ended?"""
        return topic in self._deletion.under_way

    # ---- queues -----------------------------------------------------------------------------

    def on_arrival(self, callback: Arrival) -> None:
        """Have `callback` called with messages that became visible to `get`, in log order."""
        self._dispatcher.arrivals.append(callback)

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_count: int,
        max_bytes: int,
        wanted: Callable[[int], bool] | None = None,
        matches: Callable[[bytes], bool] | None = None,
        max_tests: int | None = None,
    ) -> GetResult:
        """Messages of a queue from `queue_offset` on; see `reading` for statuses and limits.

        `wanted` tests the tags_code, `matches` the property string of what passed that; of so many
        messages at most (`max_tests`) when that is fewer than `max_filter_message_bytes` allow.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        limits = GetLimits(max_count, max_bytes, wanted, matches, max_tests)
        return read_queue(
            self._log,
            queue,
            queue_offset,
            key=(topic, queue_id),
            limits=limits,
            config=self._config,
        )

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> list[Unit] | None:
        """Units of the consume queue from `queue_offset` on, at most `count_max`, over file ends.

        None for a queue that is not there; none of them beyond its ends.
        """
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue.units_over_files(queue_offset, count_max)

    def marks_of(self, topic: str, queue_id: int) -> QueueMarks | None:
        """All that moves in a queue, at one look; None when it is not there. Hot."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        return QueueMarks(
            queue.min_offset,
            queue.max_offset,
            queue.first_reaching(self._log.flushed_offset),
            None if self.replicated_end is None else queue.first_reaching(self.replicated_end),
            queue_times.last_store_time(self._log, queue, queue_id),
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset kept; 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the newest visible message; 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def synced_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset whose message a power cut could lose now; 0 without messages."""
        queue = self._queues.find(topic, queue_id)
        return queue.first_reaching(self._log.flushed_offset) if queue is not None else 0

    def queues(self) -> list[QueueKey]:
        """(topic, queue_id) of every queue that has or had messages, sorted."""
        return self._queues.keys()

    def moved_queues(self) -> list[QueueKey]:
        """Queues whose ends moved, or that went, since the last call."""
        return self._queues.take_moved()

    def has_held(self, topic: str) -> bool:
        """Was any message of the topic put since it was made?"""
        return self._queues.has_given_offsets(topic)

    # ---- times ------------------------------------------------------------------------------

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Store time (ms) of the message at `queue_offset`; None when there is none (any more)."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        return queue_times.store_time_at(self._log, queue, queue_id, queue_offset)

    def last_store_time(self, topic: str, queue_id: int) -> int | None:
        """Store time (ms) of the queue's newest message; None when it has none."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue_times.last_store_time(self._log, queue, queue_id)

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """First queue offset stored at or after `timestamp_ms`; max_offset when all are older."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue_times.offset_at_time(self._log, queue, queue_id, timestamp_ms)

    def oldest_store_time(self) -> int | None:
        """Store time (ms) of the first message kept; None when there is none."""
        record = self.record_at(self.physical_min)
        return None if record is None else store_timestamp_of(memoryview(record))

    # ---- records ----------------------------------------------------------------------------

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record at `physical_offset`, checked; None when none can begin there.

        Only for a place that is known to be a record's, from a queue unit or the index: a message's
        body may hold the bytes of a record, with this very offset in them.
        """
        found = readable_record_at(self._log, physical_offset)
        return None if found is None else bytes(found[0])

    def known_record_at(self, physical_offset: int) -> bytes | None:
        """The record of the message that begins at `physical_offset`, an offset that anybody may
        have named; None when the queue that the record names has no unit for it (any more).
        """
        found = readable_record_at(self._log, physical_offset)
        if found is None or not self._queues.has_unit_of(found[1]):
            return None
        return bytes(found[0])

    def bytes_at(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """So many bytes of the log, as they are: nothing says that a record begins there. None when
        they are not (all) kept, or not yet committed. Hot.
        """
        return self._log.view(physical_offset, size_bytes)

    def copied(self, begin: int, end: int) -> bytes | None:
        """The log's bytes from `begin` to `end`, over file ends and whether they are visible or
        not; None when they are gone.
        """
        log, parts = self._log, []
        if begin < log.min_offset:
            return None
        while begin < end:
            inside = begin % log.file_size_bytes
            part = log.file_view(begin - inside)[inside : inside + end - begin]
            parts.append(bytes(part))
            begin += len(part)
        return b"".join(parts)

    def entry_end(self, begin: int, limit: int) -> int:
        """Where the last entry of those from `begin` on ends that ends at `limit` or before; the
        first one, when that alone is longer.
        """
        log = self._log
        while True:
            data = self.copied(begin, min(limit, log.end_offset))
            assert data is not None, f"{begin} is before the log's begin, at {log.min_offset}"
            whole_bytes = self._copied(data, begin).size_bytes
            if whole_bytes:
                return begin + whole_bytes
            assert limit < log.end_offset, f"no entry ends behind {begin}"
            limit = begin + 2 * (limit - begin)

    async def records(self, begin: int) -> AsyncIterator[list[DispatchRequest]]:
        """The sound records from `begin`, where one begins, to the log's end, some at a time."""
        log, records = self._log, CheckedRecords(self._log, self._queues)
        records.begin(max(begin, log.min_offset))
        while records.position < log.end_offset:
            yield records.some(
                log.end_offset,
                self._dispatcher.delay_levels_ms,
                bytes_max=INDEX_FILL_BYTES,
                keys_max=INDEX_FILL_RECORDS,
            )
            await asyncio.sleep(0)

    def query_by_key(
        self, topic: str, key: str, *, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        """Physical offsets of messages indexed under the key, ascending; the newest `max_count`."""
        index = self._index
        if index is None or not index.files:
            return KeyQueryResult([], 0, 0)
        newest = index.files[-1]  # Before it is asked: it may find itself damaged, and be gone.
        found = index.find(index_key_hash(topic, key), max_count, begin_ms, end_ms)
        begin = max(self._log.min_offset, self._deleted.get(topic, 0))
        return KeyQueryResult(
            [offset for offset in found if offset >= begin],
            newest.end_timestamp_ms,
            newest.end_physical,
        )

    def was_deleted(self, topic: str, physical_offset: int) -> bool:
        """Was the topic deleted since something was stored for it at `physical_offset`? Hot."""
        return physical_offset < self._deleted.get(topic, 0)

    # ---- the log ----------------------------------------------------------------------------

    @property
    def visible_end(self) -> int:
        """Nothing at or beyond this byte is dispatched, read or counted; beyond every log until
        somebody sets it.
        """
        return self._log.visible_end

    @visible_end.setter
    def visible_end(self, offset: int) -> None:
        seen_to = self._dispatcher.position
        assert offset >= seen_to, f"{offset} hides what is seen, up to {seen_to}; cut the log"
        self._log.visible_end = offset
        self._dispatching.plan()

    @property
    def holes(self) -> Holes:
        """What is damaged of the log below the synced position, as far as anybody has looked."""
        return self._log.holes

    @property
    def physical_min(self) -> int:
        """First byte of the log kept."""
        return self._log.min_offset

    @property
    def physical_max(self) -> int:
        """First byte of the log not yet written."""
        return self._log.end_offset

    @property
    def physical_committed(self) -> int:
        """Everything before this byte is in the files: readers see it, SIGKILL leaves it."""
        return self._log.committed_offset

    @property
    def physical_flushed(self) -> int:
        """Everything before this byte survives a power cut."""
        return self._log.flushed_offset

    def room_in_file(self, physical_offset: int) -> int:
        """Bytes from there to the end of its file of the log."""
        return self._log.file_size_bytes - physical_offset % self._log.file_size_bytes

    def newest_record_offset(self) -> int | None:
        """Where the newest record begins that any queue leads to; None when none does. Looks at
        every queue.
        """
        return self._queues.newest_physical_offset()

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes written and not yet visible to `get`."""
        return self._dispatching.behind_bytes
