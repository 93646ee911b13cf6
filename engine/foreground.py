"""Runs a broker or name server in the foreground until a signal or an error stops it.

Place in the walk: around brokers and name servers when they are processes of their own. Nothing
here is simulated; it is the only place of these rooms that knows signals and child processes.

Invariant: SIGTERM and SIGINT end the process cleanly with exit code 0; a loop that failed ends it
with its error after a clean stop was tried. Absent on purpose: options (commands).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.runtime.memory import collect_what_is_new, look_often

SHIPPER_BACKOFF_FIRST_MS = SECOND_MS
SHIPPER_BACKOFF_MAX_MS = MINUTE_MS
SHIPPER_STOP_MS = MINUTE_MS
"""How long the shipper may take to bring the rest of the spool to the lake."""

_log = logging.getLogger(__name__)


class Party(Protocol):
    """A broker or a name server."""

    async def wait(self) -> None:
        """Raise what ended it; return never."""
        ...

    async def stop(self) -> None:
        """Stop cleanly."""
        ...


def run_until_signal(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` on a fresh event loop; the event it gets is set by SIGTERM and SIGINT."""

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await work(stopping)

    asyncio.run(main())


async def serve(parties: Sequence[Party], stopping: asyncio.Event) -> None:
    """Wait for a signal or the end of a party, then stop them all, last started first.

    Raises what ended a party.
    """
    collect_what_is_new()
    looking = asyncio.create_task(look_often(), name="collector")
    ends = [asyncio.create_task(party.wait()) for party in parties]
    signalled = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([signalled, *ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        signalled.cancel()
        failed = [end for end in ends if end.done() and not end.cancelled()]
        for end in ends:
            end.cancel()
        await asyncio.gather(signalled, *ends, return_exceptions=True)
        for party in reversed(parties):
            await party.stop()
        looking.cancel()
    for end in failed:
        end.result()


class ShipperChild:
    """The shipper as a child process: restarted when it dies, stopped when it has drained."""

    def __init__(self, store: Path, lake: str) -> None:
        command = Path(sys.executable).parent / "tidemark"
        # --parent: killed, we cannot stop it; then it ships the rest and ends by itself.
        options = ["--parent", str(os.getpid()), "--store", str(store), "--lake", lake]
        self._arguments = [str(command), "shipper", *options]
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        """Keep one shipper running beside, until `stop`."""
        self._running = asyncio.create_task(self.run(), name="shipper")

    async def run(self) -> None:
        """Keep one shipper running, until `stop`."""
        backoff_ms = SHIPPER_BACKOFF_FIRST_MS
        while not self._stopping:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            self._process = await self._start()
            if self._stopping:  # Asked to stop while it was being started.
                self._process.terminate()
            code = await self._process.wait()
            if self._stopping:
                return
            if (loop.time() - started_s) * SECOND_MS > SHIPPER_BACKOFF_MAX_MS:
                backoff_ms = SHIPPER_BACKOFF_FIRST_MS
            _log.warning("the shipper ended with code %d; again in %d ms", code, backoff_ms)
            await asyncio.sleep(backoff_ms / SECOND_MS)
            backoff_ms = min(backoff_ms * 2, SHIPPER_BACKOFF_MAX_MS)

    async def stop(self) -> None:
        """Let it ship the rest of the spool, then end; it is killed when it takes too long."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await self._wait_for(process)
        if process is None or process.returncode != 0:
            # It was not there, or died before it could drain: ship the rest in one more run.
            await self._wait_for(await self._start("--once"))
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _start(self, *options: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._arguments,
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,  # Our own standard output holds the ready line and nothing else.
            start_new_session=True,  # Ctrl-C is for us; we stop it when the broker has stopped.
        )

    async def _wait_for(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(SHIPPER_STOP_MS / SECOND_MS):
                await process.wait()
        except TimeoutError:
            _log.error("the shipper is still not done; what it left is shipped by the next one")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
