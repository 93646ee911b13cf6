"""Resolves sent runs of which too little is known, by asking their executors.

Place in the walk: `store.results` gives out doubtful runs, their executors are asked here, and what
was found is stored. A centre comes here each ten seconds.

Invariant: a run is planned again only when its executor says that it never took it, or, where that
cannot be asked, when it is idle for the job and has no log of it. One of which nobody can say is
given up in the end (`run_life`), not guessed about. Absent on purpose: the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from pipelines.scheduler.centre.calls import Executors, Sight
from pipelines.scheduler.run_life import UNKNOWN_MS_MAX, RunEvent, RunState
from pipelines.scheduler.store.results import Doubt

ASKED_AT_ONCE_MAX: Final = 50
SILENT_MS: Final = 120_000
"""A run without a result counts as lost this long after its executor was seen idle, or gone:
executors report undelivered results again every 30 s.
"""
FORGET_SILENCE_MS: Final = 3_600_000
_GONE: Final = "gone"
_IDLE: Final = "idle"
_log = logging.getLogger(__name__)

Finding = tuple[RunEvent, str]


class Doubts:
    """What this centre has seen of executors that say nothing of their runs."""

    def __init__(self, executors: Executors, now_ms: Callable[[], int]) -> None:
        self._executors = executors
        self._now_ms = now_ms
        self._silent_since: dict[tuple[int, str], int] = {}

    async def found_out(self, doubts: Sequence[Doubt], there: frozenset[str]) -> dict[int, Finding]:
        """What is to be said of these runs now, by number. `there`: the addresses of executors that
        say that they are there."""
        at_once = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

        async def asked(doubt: Doubt) -> Finding | None:
            async with at_once:
                try:
                    return await self._found_out(doubt, there)
                except Exception:  # noqa: BLE001 - of one run alone
                    _log.exception("nothing is found out about run %d", doubt.log_id)
                    return None

        found = await asyncio.gather(*(asked(doubt) for doubt in doubts))
        return {
            doubt.log_id: finding
            for doubt, finding in zip(doubts, found, strict=True)
            if finding is not None
        }

    def forget_old(self) -> None:
        """Forget silences that nobody has asked about for long."""
        old_ms = self._now_ms() - FORGET_SILENCE_MS
        self._silent_since = {
            key: since for key, since in self._silent_since.items() if since > old_ms
        }

    async def _found_out(self, doubt: Doubt, there: frozenset[str]) -> Finding | None:
        if doubt.state is RunState.SENT:
            return RunEvent.LOSE_SIGHT, "no answer was stored: its centre is gone, or was too late"
        # Idle is asked first: what begins between the questions has a log at the second.
        is_idle = await self._executors.is_idle(doubt.address, doubt.job_id)
        if is_idle is None:
            if doubt.address not in there and self._is_silent(doubt, _GONE):
                return RunEvent.BEREAVE, "its executor is gone, and may have had it"
            return self._given_up(doubt, "its executor does not say")
        self._silent_since.pop((doubt.log_id, _GONE), None)
        sight = await self._executors.sight_of(doubt)
        if doubt.state is RunState.UNKNOWN:
            return self._of_unknown(doubt, sight, is_idle=is_idle)
        # Once it was idle, the run has ended there; what it is busy with later is another.
        was_idle = is_idle or (doubt.log_id, _IDLE) in self._silent_since
        if sight is not None and was_idle and self._is_silent(doubt, _IDLE):
            return RunEvent.MISS, "its executor was idle, and has reported no result"
        return None

    def _of_unknown(self, doubt: Doubt, sight: Sight | None, *, is_idle: bool) -> Finding | None:
        match sight:
            case Sight.HERE:
                return RunEvent.SEE, "its executor has it"
            case Sight.NEVER:
                return RunEvent.MISS, "its executor never took it"
            case Sight.FORGOTTEN:
                return RunEvent.BEREAVE, "its executor cannot say: it remembers nothing so old"
            case Sight.NO_LOG if is_idle:
                return RunEvent.MISS, "its executor has none of it"
            case Sight.NO_LOG:
                return self._given_up(doubt, "its executor has no log of it and was always busy")
            case _:
                return self._given_up(doubt, "its executor shows no log")

    def _given_up(self, doubt: Doubt, why: str) -> Finding | None:
        if doubt.state is not RunState.UNKNOWN:
            return None
        if self._now_ms() < doubt.claim_until_ms + UNKNOWN_MS_MAX:
            return None
        return (
            RunEvent.GIVE_UP,
            f"whether it ran is not known: {why} for an hour",
        )

    def _is_silent(self, doubt: Doubt, why: str) -> bool:
        """Is it long since this centre first saw it so?"""
        now_ms = self._now_ms()
        return now_ms - self._silent_since.setdefault((doubt.log_id, why), now_ms) >= SILENT_MS
