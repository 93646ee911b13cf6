"""Calls executors to send or check runs, and classifies the outcome of each call.

Place in the walk: `store.results` gives out doubtful runs each ten seconds, their executors are
asked here, and what was found is stored.

Invariant: ConnectFailed means that nothing was sent, so the run is refused; whatever else goes
wrong on the way leaves it unknown. A run in doubt is planned again only when its executor says that
it never took it, or, where that cannot be asked, when it is idle for the job and has no log of it;
in the end it is given up (`run_life`), not guessed about. Absent on purpose: the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Protocol

from engine.foundation.errors import ConfigError, ConnectFailed, TidemarkError
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.run_life import FAILED, OK, UNKNOWN_MS_MAX, RunEvent, RunState
from pipelines.scheduler.store.results import Doubt
from pipelines.scheduler.store.sending import Sending
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import Calling, ExecutorClient
from pipelines.scheduler.wire.fields import Malformed
from pipelines.scheduler.wire.messages import Blocking, LogRequest, RunRequest, Taken

ADDRESSES_KEPT: Final = 4_096
"""Read ones: to read one takes as long as to send a run."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call that sent a run ended."""

    event: RunEvent
    """ACCEPT, REFUSE or LOSE_SIGHT."""
    code: int
    message: str = ""


class Sight(Enum):
    """What an executor knows of a run."""

    HERE = auto()
    """It took it: the run waits there, is at work, or has ended."""
    NEVER = auto()
    """It never took it, and would know."""
    FORGOTTEN = auto()
    """It cannot know: the run was sent before its memory begins."""
    NO_LOG = auto()
    """It has no log of it, and no more can be asked: one of XXL-Job, where a run that waits has no
    log either."""


class Executors(Protocol):
    """The executors, by their addresses. None says that one did not answer."""

    async def run(self, sending: Sending) -> Outcome:
        """Send a run."""

    async def is_there(self, address: str) -> bool:
        """Does it answer its beat?"""

    async def is_idle(self, address: str, job_id: int) -> bool | None:
        """Has it nothing of that job, at work or in its queue?"""

    async def sight_of(self, doubt: Doubt) -> Sight | None:
        """What does its executor know of that run?"""


class WiredExecutors:
    """Executors over the wire of XXL-Job."""

    def __init__(self, caller: Calling, keys: TokenBook) -> None:
        self._caller = caller
        self._keys = keys

    async def run(self, sending: Sending) -> Outcome:
        """Send a run. What cannot even be written is refused: nothing was sent of it."""
        try:
            request = _request_of(sending)
            request.encode()
        except (ValueError, TypeError, OverflowError) as error:
            return Outcome(RunEvent.REFUSE, FAILED, f"it cannot be written: {error}")
        try:
            answer = await (await self._at(sending.address)).run(request)
        except (ConnectFailed, ConfigError) as error:
            return Outcome(RunEvent.REFUSE, FAILED, str(error))
        except (TidemarkError, Malformed) as error:
            return Outcome(RunEvent.LOSE_SIGHT, FAILED, str(error))
        if answer.is_success:
            return Outcome(RunEvent.ACCEPT, OK, answer.message)
        return Outcome(RunEvent.REFUSE, answer.code, answer.message)

    async def is_there(self, address: str) -> bool:
        """Does it answer its beat?"""
        try:
            return (await (await self._at(address)).beat()).is_success
        except (TidemarkError, Malformed):
            return False

    async def is_idle(self, address: str, job_id: int) -> bool | None:
        """Has it nothing of that job, at work or in its queue?"""
        try:
            return (await (await self._at(address)).idle_beat(job_id)).is_success
        except (TidemarkError, Malformed):
            return None

    async def sight_of(self, doubt: Doubt) -> Sight | None:
        """What its executor knows of that run. One of ours answers that itself; with another, the
        log shows it: a page that ends at 0 means that there is no such run."""
        request = LogRequest(doubt.log_id, doubt.sent_ms, 1, fire_time_ms=doubt.planned_ms)
        try:
            page = await (await self._at(doubt.address)).log(request)
        except (TidemarkError, Malformed):
            return None
        if page.to_line > 0 or not page.is_end:
            return Sight.HERE
        return _SIGHTS.get(page.taken, Sight.NO_LOG)

    async def _at(self, address: str) -> ExecutorClient:
        key = await self._keys.key_for(address)
        return ExecutorClient(self._caller, _address(address), token=key.token, app=key.app)


def _request_of(sending: Sending) -> RunRequest:
    settings = sending.settings
    return RunRequest(
        job_id=sending.job_id,
        log_id=sending.log_id,
        log_time_ms=sending.sent_ms,
        handler=settings.handler,
        parameters=settings.parameters,
        blocking=Blocking(settings.blocking),
        timeout_s=settings.timeout_s,
        glue_type=settings.glue_type,
        glue_source=settings.glue_source,
        glue_time_ms=sending.glue_changed_ms,
        shard_index=sending.shard_index,
        shard_total=sending.shard_total,
        fire_time_ms=sending.planned_ms,
    )


_SIGHTS: Final[Mapping[str | None, Sight]] = {
    Taken.YES: Sight.HERE,
    Taken.NO: Sight.NEVER,
    Taken.UNSURE: Sight.FORGOTTEN,
}
_address = lru_cache(maxsize=ADDRESSES_KEPT)(Address.parse)


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
