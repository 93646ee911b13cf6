"""Delivers stored notices through their channels to many receivers concurrently.

Each receiver has a task of its own while something is due for it, so one that hangs holds up no
other; what blocks runs in threads of the courier's own. Invariant: a task settles what it claimed
before it claims more, however long the database is away. Absent on purpose: deciding what follows a
failure (outcomes), and what a notice looks like (channels).
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from pipelines.alerting.alerts import Notice
from pipelines.alerting.outbox import claims
from pipelines.alerting.outbox.claims import Claimed
from pipelines.alerting.outbox.outcomes import Failed, Outcome, Trouble, delay_us
from pipelines.database.database import CONNECTIONS_MAX, Database, StoreUnavailable

LOOK_S: Final = 1.0
"""How often the courier looks for what is due when nobody wakes it."""

SETTLING_S: Final = 5.0
"""A claim lasts so much longer than its channel may take."""

STORE_PAUSE_MAX_S: Final = 30.0

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """Brings notices to one receiver."""

    @property
    def timeout_s(self) -> float:
        """A try that takes longer is over, whatever came of it."""
        ...

    async def send(self, notice: Notice) -> Outcome:
        """Try once. Raises nothing that it can foresee."""
        ...


@dataclass(frozen=True, slots=True)
class Chances:
    """What the courier takes from the world."""

    now_us: Callable[[], int]
    """µs since 1970."""
    chance: Callable[[], float]
    """A number in [0, 1)."""
    claim: Callable[[], str]
    """A text that was never given before."""


@dataclass(slots=True, eq=False)
class Courier:
    """Delivers what the outbox of one lake holds. `run` it in a task, `wake` it after each step."""

    database: Database
    lake: str
    channels: Mapping[str, Channel]
    chances: Chances
    _: KW_ONLY
    settling_s: float = SETTLING_S
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _at_work: set[str] = field(default_factory=set, init=False)
    _missed: set[str] = field(default_factory=set, init=False)
    """Something was due for them while they were at work: perhaps they did not see it."""
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(
            CONNECTIONS_MAX - 2, thread_name_prefix="outbox"
        ),
        init=False,
    )

    def wake(self) -> None:
        """Something new is stored: look at once."""
        self._woken.set()

    def now_has(self, channels: Mapping[str, Channel]) -> None:
        """From the next notice on, these channels."""
        self.channels = channels
        self.wake()

    async def run(self, until: asyncio.Event) -> None:
        """Deliver until asked to stop; what is under way then is brought to its end."""
        stopping = asyncio.create_task(until.wait())
        stopping.add_done_callback(lambda _: self.wake())
        failures = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                while not until.is_set():
                    self._woken.clear()
                    try:
                        due = await self._answer(claims.with_something_due)
                        failures = 0
                    except StoreUnavailable as error:
                        failures += 1
                        _log.warning("the outbox cannot be read (%s)", error)
                        due = ()
                    for receiver in due:
                        if receiver in self._at_work:
                            self._missed.add(receiver)
                        else:
                            self._at_work.add(receiver)
                            tasks.create_task(self._serve(receiver, until))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(
                            self._woken.wait(), LOOK_S if not failures else self._pause_s(failures)
                        )
        finally:
            stopping.cancel()
            self._threads.shutdown(wait=False)

    async def _serve(self, receiver: str, until: asyncio.Event) -> None:
        """Send to one receiver as long as something is due for it."""
        try:
            while not until.is_set():
                channel = self.channels.get(receiver)
                timeout_s = 0.0 if channel is None else channel.timeout_s
                claimed = await self._answer(
                    claims.claim_next,
                    receiver,
                    self.chances.claim(),
                    lasts_us=int((timeout_s + self.settling_s) * 1e6),
                )
                if claimed is None:
                    return
                outcome = await tried(channel, claimed.notice)
                await self._settle(claimed, outcome, until)
        except StoreUnavailable as error:
            _log.warning("nothing can be claimed for receiver %s (%s)", receiver, error)
        finally:
            self._at_work.discard(receiver)
            if receiver in self._missed:
                self._missed.discard(receiver)
                self.wake()

    async def _settle(self, claimed: Claimed, outcome: Outcome, until: asyncio.Event) -> None:
        if isinstance(outcome, Failed):
            _log.warning(
                "notice %s is not delivered to receiver %s, try %d: %s",
                claimed.notice.notice_id,
                claimed.notice.receiver,
                claimed.tries,
                outcome.error,
            )
        failures = 0
        while True:
            try:
                await self._in_thread(
                    partial(
                        claims.settle,
                        self.database,
                        claimed,
                        outcome,
                        now_us=self.chances.now_us(),
                        chance=self.chances.chance(),
                    )
                )
            except StoreUnavailable as error:
                failures += 1
                _log.warning(
                    "what came of notice %s cannot be noted yet (%s)",
                    claimed.notice.notice_id,
                    error,
                )
                if until.is_set():
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(until.wait(), self._pause_s(failures))
            else:
                return

    async def _answer(
        self, question: Callable[..., Answer], *given: str, **settings: int
    ) -> Answer:
        return await self._in_thread(
            partial(
                question,
                self.database,
                self.lake,
                *given,
                now_us=self.chances.now_us(),
                **settings,
            )
        )

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _pause_s(self, failures: int) -> float:
        return min(delay_us(failures, self.chances.chance()) / 1e6, STORE_PAUSE_MAX_S)


async def tried(channel: Channel | None, notice: Notice) -> Outcome:
    """Send once; returns the outcome, whatever happens."""
    if channel is None:
        return Failed(Trouble.NOT_SET_UP, f"no receiver {notice.receiver!r} is set up")
    try:
        async with asyncio.timeout(channel.timeout_s):
            return await channel.send(notice)
    except TimeoutError:
        return Failed(Trouble.UNREACHABLE, f"no answer within {channel.timeout_s:g} s")
    except Exception as error:  # noqa: BLE001 - a bug over one notice must not hold up all others
        place = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
        _log.error("notice %s cannot be sent: %s", notice.notice_id, fault)
        return Failed(Trouble.REFUSED, f"it cannot be sent: {fault}")
