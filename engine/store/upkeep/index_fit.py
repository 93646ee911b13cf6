"""Checks that the index belongs to this log and not to another store.

Place in the walk: `recovery`, before the scan. A file of another store is as well formed as our
own. A few entries of each file are followed to their records: a record that is not there, or has no
key of that hash, shows that the file is none of ours. Holes apart, which explain a missing record.
Invariant: only records that were on stable storage are asked for. Absent on purpose: reading every
entry, which takes as long as building the index again.
"""

from __future__ import annotations

from engine.protocol.hashes import index_key_hash
from engine.store.commit_log import CommitLog
from engine.store.dispatch import message_keys
from engine.store.index.index import Index
from engine.store.index.index_file import IndexFile
from engine.store.sound_records import record_at


def stranger_in(index: Index, log: CommitLog, synced_to: int) -> str | None:
    """Which entry does not fit its record, in words; None when those looked at do."""
    for file in index.files:
        for number in sorted({1, file.index_count // 2, file.index_count - 1}):
            if 0 < number < file.index_count and not _fits(file, number, log, synced_to):
                return f"entry {number} of index file {file.start:017d} does not fit the commit log"
    return None


def _fits(file: IndexFile, number: int, log: CommitLog, synced_to: int) -> bool:
    key_hash, physical_offset = file.entry(number)
    if not log.min_offset <= physical_offset < synced_to:
        return True
    request = record_at(log, physical_offset)
    if request is None:
        return log.holes.at(physical_offset) is not None
    keys = message_keys(request.properties)
    return any(index_key_hash(request.topic, key) == key_hash for key in keys)
