"""The synced position: the log offset up to which everything was once on stable storage.

Place in the walk: `recovery` and `store check` begin with it; below it nothing of the log is cut.

Invariant: never beyond what a sync or a clean stop has covered, as far as undamaged notes say.
Absent on purpose: what was damaged since.
"""

from __future__ import annotations

from engine.store.behind_damage import BehindDamage
from engine.store.commit_log import CommitLog, written_end
from engine.store.queue_table import QueueTable
from engine.store.sound_records import record_at
from engine.store.upkeep.checkpoint import Checkpoint


def synced_position(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, *, clean: bool
) -> int:
    """As noted; else, after a clean stop, all that is not zero, and after an unclean one what store
    times say. All that is not zero, too, beside a checkpoint that was lost: what was never synced
    may be among it, and nothing that was is taken for it.
    """
    if checkpoint.flushed_offset:
        return checkpoint.flushed_offset
    if not clean and not checkpoint.is_blank:
        return _synced_by_time(log, BehindDamage(log, queues), checkpoint.physic_timestamp_ms)
    reached = written_to(log, log.min_offset)
    # A record may end in zeros, and the newest file may be empty or gone; a unit that says more
    # than that is damaged.
    newest = max([queue.end_physical for queue in queues.all()], default=0)
    return max(reached, newest) if newest <= log.end_offset + log.file_size_bytes else reached


def _synced_by_time(log: CommitLog, behind_damage: BehindDamage, physic_timestamp_ms: int) -> int:
    """End of the newest record that is older than the newest synced one."""
    for start in reversed(log.files.starts):
        file_end = start + log.file_size_bytes
        place, synced_to = start, 0
        while place < file_end:
            request = record_at(log, place)
            if request is None:
                place = behind_damage.find(place, file_end)
                continue
            if request.store_timestamp_ms >= physic_timestamp_ms:
                break
            place = synced_to = place + request.size_bytes
        if synced_to:
            return synced_to
    return 0


def first_unvouched(log: CommitLog, checkpoint: Checkpoint, indexed: int) -> int:
    """Start of the newest file whose first message is older than all that the checkpoint vouches
    for, and not behind `indexed`.
    """
    for start in reversed(log.files.starts):
        request = record_at(log, start)
        if request is None or request.store_timestamp_ms > checkpoint.recover_from_ms:
            continue
        if indexed >= start:
            return start
    return log.min_offset


def written_to(log: CommitLog, begin: int) -> int:
    """Offset behind the last byte at or after `begin` that is not zero; 0 when all are."""
    first = log.files.start_at(begin)
    for start in reversed(log.files.starts):
        if start < first:
            break
        inside = begin - start if start == first else 0
        length = written_end(log.file_view(start)[inside:])
        if length:
            return start + inside + length
    return 0
