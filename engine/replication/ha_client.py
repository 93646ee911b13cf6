"""A slave's HA client, which copies the master's commit log and reports its progress.

Place in the walk: beside the loops of a broker that is a slave; what it appends is dispatched to
queues as any put is.

Before it follows, it compares: it asks the master where its log begins and ends, then has itself
sent the end of its own log again, and follows only when the bytes are the same. A log that the
master does not have is never cut here: it may be the only copy of messages that were acknowledged.

Invariant: what it reports is in its log (synced, in SYNC_FLUSH), whole entries only, and was
compared with, or sent by, the master it is connected with. Absent on purpose: tables (broker),
promotion, and the cut of a log that differs, which somebody has to decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from engine.foundation.errors import (
    ClusterError,
    ProtocolError,
    StorageError,
    TidemarkError,
    Unreachable,
)
from engine.foundation.units import KIB, SECOND_MS
from engine.replication.ha_frames import HEARTBEAT_MS, REPORT, SILENT_MS_MAX, TICK_MS, Pieces
from engine.runtime import Runtime
from engine.runtime.tls import ClientTls
from engine.store import Epoch, MessageStore

CONNECT_TIMEOUT_MS: Final = 3 * SECOND_MS
RETRY_MS: Final = SECOND_MS
"""How long after a lost master it is tried again (RocketMQ: 5 s)."""
MUCH_BYTES: Final = 256 * KIB
"""As much as is read at once: who gets it is behind, and more waits to be read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where a master is, and the log that it says it has."""

    ha_host: str
    ha_port: int
    log_begin: int
    log_end: int
    epochs: tuple[Epoch, ...] = ()
    """Empty when it has none, as RocketMQ's masters."""


class Following(Enum):
    """How a slave stands to its master."""

    SEARCHING = "SEARCHING"
    """It knows no master, or does not reach it."""
    COMPARING = "COMPARING"
    FOLLOWING = "FOLLOWING"
    DIVERGED = "DIVERGED"
    """Its log holds what the master's does not, or ends before the master's begins: somebody has to
    decide which of them is right.
    """
    FAILED = "FAILED"
    """It cannot store what it is sent."""


class Diverged(TidemarkError):
    """The log of this node and its master's are not the same where they should be."""


class HaClient:
    """Follows one master after the other."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        find_master: Callable[[], Awaitable[MasterAddress | None]],
        is_slave: Callable[[], bool],
        tls: ClientTls | None,
    ) -> None:
        """`find_master` raises TidemarkError, or returns None while nobody is known."""
        self._runtime = runtime
        self._store = store
        self._find_master = find_master
        self._is_slave = is_slave
        self._connection: _Connection | None = None
        self.at_rest = asyncio.Lock()
        """Whoever holds it knows that nothing is asked, compared or appended."""
        self._tls = tls
        self.following = Following.SEARCHING
        self.reason = "no master is known yet"
        """Why it does not follow, in words."""
        self.master_end: int | None = None
        """Where the master's log ended at its last word."""

    def leave(self) -> None:
        """Take nothing more from the master it follows; `run` looks for one again."""
        if self._connection is not None:
            self._connection.close()

    async def run(self) -> None:
        """Follow while this node is a slave, until cancelled."""
        while True:
            async with self.at_rest:
                if self._is_slave():
                    await self._follow_once()
            await asyncio.sleep(RETRY_MS / SECOND_MS)

    async def _follow_once(self) -> None:
        try:
            master = await self._find_master()
            if master is None:
                self._note(Following.SEARCHING, "no name server knows a master")
                return
            await self._follow(master)
        except Diverged as error:
            self._note(Following.DIVERGED, str(error))
        except StorageError as error:
            self._note(Following.FAILED, str(error))
        except TidemarkError as error:
            self._note(Following.SEARCHING, str(error))

    def _note(self, following: Following, reason: str) -> None:
        if (following, reason) != (self.following, self.reason):
            level = logging.ERROR if following is Following.DIVERGED else logging.WARNING
            _log.log(level, "%s: %s", following.name, reason)
        self.following, self.reason = following, reason

    async def _begin(self, master: MasterAddress, connection: _Connection) -> None:
        """Compare from the end of this log on, in the master's epochs."""
        if not self._is_slave():
            return
        self.master_end = master.log_end
        await self._begin_if_empty(master)
        begin = self._compare_from(master)
        self._note(Following.COMPARING, f"with {master.ha_host}:{master.ha_port}")
        connection.begin(begin)

    async def _begin_if_empty(self, master: MasterAddress) -> None:
        """A log without anything begins where the master's does."""
        store = self._store
        if store.physical_max == store.physical_min == 0 and master.log_begin > 0:
            await store.begin_at(master.log_begin)

    def _compare_from(self, master: MasterAddress) -> int:
        """Where the comparison begins: the newest record that a queue of this log knows, so that
        what lies behind it is compared byte by byte; the log's end when it holds nothing.
        """
        store = self._store
        begin, end = store.physical_min, store.physical_max
        if end > master.log_end:
            raise Diverged(
                f"this log ends at {end}, that of the master at {master.log_end}: the master lacks "
                f"{end - master.log_end} bytes. Promote this node, or rebuild its log"
            )
        if end < master.log_begin:
            raise Diverged(
                f"this log ends at {end}, that of the master begins at {master.log_begin}: what "
                "lies between was deleted there. Rebuild this node's log"
            )
        if end == begin:
            return end
        return max(store.newest_record_offset() or begin, master.log_begin)

    async def _follow(self, found: MasterAddress) -> None:
        connection = _Connection(self._runtime, self._store, on_following=self._is_following)
        self._connection = connection
        await self._runtime.network.connect(
            found.ha_host,
            found.ha_port,
            lambda: connection,
            timeout_ms=CONNECT_TIMEOUT_MS,
            tls=self._tls,
        )
        try:
            # Asked once more: as long as the connection stands, it is in the epochs it has now.
            master = await self._find_master()
            if master is None or (master.ha_host, master.ha_port) != (found.ha_host, found.ha_port):
                raise ClusterError("another node became the master")
            await self._begin(master, connection)
            while self._is_slave() and not connection.ended.done():
                await connection.wait(TICK_MS)
                if connection.is_compared:
                    # Only now: the epochs of a log that differs say where it does.
                    await self._store.epochs.take(master.epochs, self._store.physical_max)
                    connection.go_on()
                connection.tick(self._runtime.clock.steady_ms())
            if connection.ended.done():
                connection.ended.result()
            self._note(Following.SEARCHING, "it takes nothing from its master any more")
        finally:
            connection.close()

    def _is_following(self, master_end: int) -> None:
        self.master_end = max(master_end, self.master_end or 0)
        self.following, self.reason = Following.FOLLOWING, ""


class _Connection(asyncio.Protocol):
    """The connection with one master."""

    def __init__(
        self,
        runtime: Runtime,
        store: MessageStore,
        *,
        on_following: Callable[[int], None],
    ) -> None:
        self._clock = runtime.clock
        self._store = store
        self._on_following = on_following
        self._pieces = Pieces()
        self._transport: asyncio.Transport | None = None
        self._follows = False
        """Was it compared, and are the master's epochs known?"""
        self._held: list[bytes] = []
        """What comes before that."""
        self._compared = asyncio.get_running_loop().create_future()
        self._has_begun = False
        self._more_follows = False
        self._at = 0
        """Behind the last byte that the master has sent."""
        self._own_end = 0
        """Up to here the master's bytes are compared with those of this log."""
        self._rest = b""
        """The begin of an entry whose rest has not come yet."""
        self._heard_ms = self._said_ms = self._clock.steady_ms()
        self._reported = 0
        self._awaited = 0
        """The end that was reported, or is when it is synced."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what ended it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The master is there."""
        self._transport = cast(asyncio.Transport, transport)
        if self.ended.done():
            self.close()

    def begin(self, offset: int) -> None:
        """Have the master send what begins at `offset`."""
        if self.ended.done():
            return
        self._has_begun = True
        self._at = self._reported = self._awaited = offset
        self._own_end = self._store.physical_max
        self._say(offset)
        self._note_compared()

    def _note_compared(self) -> None:
        if self._at >= self._own_end and not self._compared.done():
            self._compared.set_result(None)

    @property
    def is_compared(self) -> bool:
        """Are the logs the same where they should be? Nothing is stored until `go_on`."""
        return self._compared.done() and not self._follows and not self.ended.done()

    async def wait(self, timeout_ms: int) -> None:
        """Wait until it ends, or is compared; for so long at most."""
        awaited = [self.ended] if self._follows else [self.ended, self._compared]
        await asyncio.wait(
            awaited, timeout=timeout_ms / SECOND_MS, return_when=asyncio.FIRST_COMPLETED
        )

    def go_on(self) -> None:
        """Store what the master sends from here on, and report it."""
        if self.ended.done():
            return
        self._follows = True
        held, self._held = self._held, []
        try:
            self._store_all(b"".join(held))
            self._on_following(self._at)
            self._report()
        except TidemarkError as error:
            self._end(error)
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The master is gone."""
        self._end(Unreachable(f"the master is gone: {exc or 'it closed the connection'}"))

    def data_received(self, data: bytes) -> None:
        """More of the log, or a heartbeat."""
        if self.ended.done():
            return
        self._heard_ms = self._clock.steady_ms()
        try:
            if not self._has_begun:
                raise ProtocolError("a master sends what nobody has asked for")
            self._more_follows = len(data) >= MUCH_BYTES
            for offset, piece in self._pieces.feed(data):
                self._take(offset, piece)
            self._report()
        except TidemarkError as error:
            self._end(error)

    def _take(self, offset: int, piece: memoryview) -> None:
        if offset != self._at:
            raise Diverged(f"the master sends what begins at {offset}, {self._at} is next here")
        self._at += len(piece)
        known = min(len(piece), self._own_end - offset)
        if known > 0:
            self._compare(offset, piece[:known])
            piece = piece[known:]
        if self._follows:
            self._store_all(piece)
            self._on_following(self._at)
        elif self._at >= self._own_end:
            self._held.append(bytes(piece))
            self._note_compared()
            if self._transport is not None:
                self._transport.pause_reading()

    def _compare(self, offset: int, piece: memoryview) -> None:
        own = self._own_bytes(offset, len(piece))
        if own != piece:
            raise Diverged(
                f"this log and the master's differ between {offset} and {offset + len(piece)}: "
                "their ends were written by different masters. Rebuild this node's log"
            )

    def _own_bytes(self, offset: int, size: int) -> bytes:
        """Bytes of this log, over the ends of its files."""
        parts, at, end = [], offset, offset + size
        while at < end:
            view = self._store.bytes_at(at, min(end - at, self._store.room_in_file(at)))
            if view is None:
                raise Diverged(f"what begins at {at} cannot be read here; repair this node's store")
            parts.append(bytes(view))
            at += len(view)
        return b"".join(parts)

    def _store_all(self, piece: bytes | memoryview) -> None:
        if not piece:
            return
        store, begin = self._store, self._at - len(piece) - len(self._rest)
        data = b"".join((self._rest, piece))
        end = store.append_at(begin, data, more_follows=self._more_follows)
        self._rest = data[end - begin :]

    def _report(self) -> None:
        """Say how far the log is, when it is safe as far as this node promises."""
        end = self._store.physical_max
        if not self._follows or end == self._awaited:
            return
        self._awaited = end
        commit = self._store.when_flushed(end)
        if commit is None:
            self._say(end)
        else:
            commit.call_when_settled(lambda synced: self._say(end) if synced else None)

    def _say(self, end: int) -> None:
        if self._transport is not None and not self.ended.done():
            self._reported = max(end, self._reported)
            self._said_ms = self._clock.steady_ms()
            self._transport.write(REPORT.pack(end))

    def tick(self, now_ms: int) -> None:
        """A second has passed."""
        if now_ms - self._heard_ms > SILENT_MS_MAX:
            self._end(
                Unreachable(f"the master has said nothing for {SILENT_MS_MAX // SECOND_MS} s")
            )
        elif now_ms - self._said_ms >= HEARTBEAT_MS and self._follows:
            self._say(self._reported)

    def _end(self, error: TidemarkError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.close()

    def close(self) -> None:
        """Follow it no more."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)
