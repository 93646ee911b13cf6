"""Applies each log entry once, in order, to every state derived from the log.

Place in the walk: `dispatch` hands every state what it has just made visible; whoever changes one
puts a record (`message_store.put` says at which position) and waits until that is applied. A state
that was read from disk is a snapshot, which knows up to where it was applied, and catches up; one
of a log that was cut forgets what went.

Invariant: each state is given every entry once, in the order of the log, without a gap, and none
that is not visible; equal logs make equal states. Damage of the log is passed over. Absent on
purpose: what states are, and when one is saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from engine.foundation.errors import OffsetOutOfRange
from engine.foundation.limits import INDEX_FILL_BYTES, INDEX_FILL_RECORDS
from engine.store.commit_log import CommitLog
from engine.store.dispatch import Dispatcher
from engine.store.log_walk import CheckedRecords
from engine.store.queue_table import QueueTable
from engine.store.record_reading import DispatchRequest


class LogState(Protocol):
    """A state that follows the log."""

    @property
    def applied_offset(self) -> int:
        """What the log holds before this physical offset has been applied."""
        ...

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        """Apply what the log holds from `applied_offset` to `end_offset`, its new value."""
        ...

    def cut(self, end_offset: int) -> None:
        """Forget what entries behind `end_offset` have done; `applied_offset` may be lower then, as
        that of an older snapshot is, and what is in between is applied again.
        """
        ...

    def begin_at(self, offset: int) -> None:
        """The log, which holds nothing, begins there: forget every entry of before."""
        ...


class LogStates:
    """Those of one store."""

    def __init__(self, log: CommitLog, queues: QueueTable, dispatcher: Dispatcher) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._states: list[LogState] = []
        dispatcher.on_applied = self._apply

    async def follow(self, state: LogState) -> None:
        """Bring the state to where dispatch is, some entries at a time, and go on from there; again
        for one that went back by itself.

        Raises OffsetOutOfRange when the log begins behind what it has applied.
        """
        if state not in self._states:
            self._states.append(state)
        try:
            await self._catch_up(state)
        except BaseException:
            self._states.remove(state)
            raise

    async def cut(self, end_offset: int) -> None:
        """The log ends at `end_offset`, before anything is dispatched behind it."""
        for state in self._states:
            if state.applied_offset > end_offset:
                state.cut(end_offset)
        for state in list(self._states):
            await self._catch_up(state)

    def begin_at(self, offset: int) -> None:
        """The log, which holds nothing, begins at `offset`."""
        for state in self._states:
            state.begin_at(offset)

    def _apply(self, entries: Sequence[DispatchRequest], begin: int, end: int) -> None:
        """Dispatched: for those states that have come so far."""
        for state in self._states:
            if state.applied_offset == begin:
                state.apply(entries, end)

    async def _catch_up(self, state: LogState) -> None:
        log, dispatcher = self._log, self._dispatcher
        if state.applied_offset > dispatcher.position:
            state.cut(dispatcher.position)
        records = CheckedRecords(log, self._queues)
        while state.applied_offset < dispatcher.position:
            applied = state.applied_offset
            if applied < log.min_offset:
                raise OffsetOutOfRange(
                    f"the log begins at {log.min_offset}, and a state was applied up to {applied}: "
                    "it needs a newer snapshot"
                )
            if applied != records.position:
                records.begin(applied)
            entries = records.some(
                dispatcher.position,
                dispatcher.delay_levels_ms,
                bytes_max=INDEX_FILL_BYTES,
                keys_max=INDEX_FILL_RECORDS,
            )
            state.apply(entries, records.position)
            await asyncio.sleep(0)
