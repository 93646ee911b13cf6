"""A replica that acknowledges what a test has it acknowledge, and nothing else."""

from __future__ import annotations

import asyncio

from engine.broker.sending.safety import Condition, PutStatus
from engine.store import GroupCommit


class FakeReplica:
    """It acknowledges positions of a term; who waits longer than `timeout_ms` waits in vain."""

    def __init__(self, timeout_ms: int = 60_000) -> None:
        self._timeout_ms = timeout_ms
        self._acknowledged: dict[int, int] = {}
        self._waits: list[tuple[int, int, GroupCommit]] = []

    def condition(self) -> Condition:
        return Condition(self.when_acknowledged, PutStatus.FLUSH_SLAVE_TIMEOUT)

    def when_acknowledged(self, term: int, end_offset: int) -> GroupCommit | None:
        if end_offset <= self._acknowledged.get(term, 0):
            return None
        met = GroupCommit(asyncio.get_running_loop(), self._timeout_ms)
        self._waits.append((term, end_offset, met))
        return met

    def acknowledge(self, term: int, end_offset: int) -> None:
        """It has everything of the term up to there."""
        self._acknowledged[term] = end_offset
        for of_term, wanted, met in self._waits:
            if of_term == term and wanted <= end_offset:
                met.settle(flushed=True)
