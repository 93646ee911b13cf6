"""The centre's calls to executors, with outcomes it can act on, and their HTTP version.

Invariant: an outcome says what is known. ConnectFailed means that nothing was sent, so the run is
refused; whatever else goes wrong on the way leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Protocol

from engine.foundation.errors import ConfigError, ConnectFailed, TidemarkError
from pipelines.scheduler.centre.token_book import TokenBook
from pipelines.scheduler.run_life import FAILED, OK, RunEvent
from pipelines.scheduler.store.results import Doubt
from pipelines.scheduler.store.sending import Sending
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import Calling, ExecutorClient
from pipelines.scheduler.wire.fields import Malformed
from pipelines.scheduler.wire.messages import Blocking, LogRequest, RunRequest, Taken

ADDRESSES_KEPT: Final = 4_096
"""Read ones: to read one takes as long as to send a run."""


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
