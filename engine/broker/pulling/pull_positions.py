"""Notes from where a pull reads, and decides whether its reader has to go elsewhere.

Place in the walk: between a pull's checks and its read. A reset moves a reader, and so does an
offset that it remembers of messages that are gone; an offset that the pull carries is committed.

Invariant: a reader that is moved has neither committed nor pulled. Absent on purpose: which offsets
count (offsets/remembered_offsets).
"""

from __future__ import annotations

from engine.broker.groups.membership import Membership
from engine.broker.groups.readers import Readers
from engine.broker.offsets.commit_reports import CommitReports
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.new_lives import NewLives
from engine.broker.offsets.remembered_offsets import RememberedOffsets
from engine.broker.pulling.pull_checks import Pull
from engine.protocol.names import PullSysFlag
from engine.runtime.clock import Clock

COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)  # A plain number, as PERM_READ is.


class PullPositions:
    """Where the readers of one broker are."""

    def __init__(
        self,
        *,
        clock: Clock,
        offsets: ConsumerOffsets,
        readers: Readers,
        remembered: RememberedOffsets,
        new_lives: NewLives,
        reports: CommitReports,
        membership: Membership,
    ) -> None:
        self._clock = clock
        self._offsets = offsets
        self._readers = readers
        self._remembered = remembered
        self._new_lives = new_lives
        self._reports = reports
        self._membership = membership

    def moved_to(self, pull: Pull) -> int | None:
        """Where the reader has to go on instead; None: its offset counts, and is noted. Hot."""
        key, offset = pull.key, pull.header.queue_offset
        back_to = self._remembered.goes_back_to(key, offset, pull.client, shared=pull.shared)
        self._note_reader(pull, is_sent_back=back_to is not None)
        if back_to is not None:
            committed = self._offsets.answered(*key)
            if pull.shared and (committed is None or committed > back_to):
                # So does any other of its group that asks, whatever its start policy is.
                self._new_lives.place_at(key, back_to)
            return back_to
        if pull.shared:
            self._new_lives.pulled_from(key, offset)
        self._remembered.note_pull(key, offset, pull.client)
        self._commit(pull)
        return self._offsets.take_reset(*key)

    def reset_to(self, pull: Pull) -> int | None:
        """The offset to which a reset moves the reader of a held pull; None without a reset."""
        return self._offsets.take_reset(*pull.key)

    def _note_reader(self, pull: Pull, *, is_sent_back: bool) -> None:
        if not pull.shared:
            return
        is_new, previous = self._readers.arrived(
            pull.key,
            pull.reader,
            now_ms=self._clock.now_ms(),
            from_offset=pull.header.queue_offset,
            is_sent_back=is_sent_back,
        )
        if is_new and pull.reader is not None:
            self._membership.reader_changed(pull.key, pull.reader, previous)

    def _commit(self, pull: Pull) -> None:
        """The piggyback: a pull that arrives may carry the offset to store (row A5)."""
        if pull.header.sys_flag & COMMIT_OFFSET and pull.header.commit_offset >= 0:
            self._reports.commit(
                pull.peer,
                pull.key,
                pull.header.commit_offset,
                path="PULL_PIGGYBACK",
                trigger="UNKNOWN",
                pulled_from=pull.header.queue_offset,
            )
