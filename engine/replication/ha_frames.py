"""Encodes and decodes RocketMQ's HA protocol frames without performing I/O.

Place in the walk: `ha_service` writes pieces and reads reports, `ha_client` the other way round.

    slave to master   i64 the offset behind the last byte that the slave has
    master to slave   i64 offset of the first byte, i32 length, bytes; a heartbeat has none

Invariant: whatever arrives is a frame, the begin of one, or refused. Absent on purpose: the
handshake of RocketMQ's controller mode.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from engine.foundation.errors import ProtocolError
from engine.foundation.limits import HA_PIECE_BYTES_MAX
from engine.foundation.units import SECOND_MS

REPORT: Final = Struct(">q")
PIECE: Final = Struct(">qi")

HEARTBEAT_MS: Final = 5 * SECOND_MS
"""How long either side may send nothing (RocketMQ: haSendHeartbeatInterval)."""
SILENT_MS_MAX: Final = 20 * SECOND_MS
"""After so long a silence either side gives the other up (RocketMQ: haHousekeepingInterval)."""
TICK_MS: Final = SECOND_MS
"""How often each looks at its clock."""


class Reports:
    """The reports of one slave, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest offset that is whole with these bytes; None when none is. Raises ProtocolError
        for one that no log has.
        """
        data = self._rest + data
        whole_bytes = len(data) - len(data) % REPORT.size
        self._rest = data[whole_bytes:]
        if not whole_bytes:
            return None
        (offset,) = REPORT.unpack_from(data, whole_bytes - REPORT.size)
        if offset < 0:
            raise ProtocolError(f"a slave reports offset {offset}; a log begins at 0")
        return int(offset)


class Pieces:
    """The pieces of a master's log, in whatever parts they arrive."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, memoryview]]:
        """(offset, bytes) of every piece that is whole with these bytes. Raises ProtocolError for
        one that is longer than HA_PIECE_BYTES_MAX, or lies before the begin of a log.
        """
        if self._rest:
            data = self._rest + data
        pieces, at, view = [], 0, memoryview(data)
        while at + PIECE.size <= len(view):
            offset, length = PIECE.unpack_from(view, at)
            if offset < 0 or not 0 <= length <= HA_PIECE_BYTES_MAX:
                raise ProtocolError(
                    f"a piece of {length} bytes at {offset}; at most {HA_PIECE_BYTES_MAX} are taken"
                )
            end = at + PIECE.size + length
            if end > len(view):
                break
            pieces.append((int(offset), view[at + PIECE.size : end]))
            at = end
        self._rest = data[at:]
        return pieces
