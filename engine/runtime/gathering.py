"""Writes several buffers at once, joining small ones without copying large ones.

Place in the walk: where a connection's frames of a turn leave, above all large answers to pulls,
whose records lie apart in the log. asyncio's transports of Python 3.11 join what they are given
several of; here the kernel collects it.

Invariant: bytes leave in order; of what is large, only what the kernel does not take is copied.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from engine.foundation.units import KIB, Buffer

JOINED_PARTS_BYTES_MAX: Final = 64 * KIB
"""Larger parts are written as they are, uncopied; the others are joined first."""

IOV_MAX: Final = 1024
"""Pieces in one system call (Linux)."""

Part = Buffer | tuple[Buffer, ...]
"""Bytes to write; several in a tuple belong together and are not to be joined first."""


def write_parts(transport: asyncio.Transport, parts: Sequence[Part]) -> None:
    """Write `parts` in order."""
    small: list[Buffer] = []
    for part in parts:
        if isinstance(part, tuple):
            _gather_write(transport, [*small, *part])
            small = []
            continue
        if len(part) <= JOINED_PARTS_BYTES_MAX:
            small.append(part)
            continue
        if small:
            transport.write(b"".join(small))
            small = []
        transport.write(part)
    if small:
        transport.write(small[0] if len(small) == 1 else b"".join(small))


def _gather_write(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> None:
    left = _take_at_once(transport, pieces)
    for piece in pieces:
        if left >= len(piece):
            left -= len(piece)
            continue
        transport.write(memoryview(piece)[left:] if left else piece)
        left = 0


def _take_at_once(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> int:
    """Bytes the kernel took now; 0 for what is no plain socket, or has something waiting."""
    socket = transport.get_extra_info("socket")
    if (
        socket is None
        or transport.get_extra_info("ssl_object") is not None
        or transport.is_closing()
        or transport.get_write_buffer_size()
    ):
        return 0
    try:
        return os.writev(socket.fileno(), pieces[:IOV_MAX])
    except OSError:  # Full, or gone: the transport finds out which.
        return 0


def let_go(transport: asyncio.Transport) -> None:
    """The connection has ended: undo the circle in which asyncio's transport holds itself (its
    callback for bytes is a method of its own), so that it goes with its last user and is not left
    to the collector. 1.4 KiB each, for as long as a large process does not look for circles.
    """
    if hasattr(transport, _OWN_CALLBACK):
        setattr(transport, _OWN_CALLBACK, None)


_OWN_CALLBACK = "_read_ready_cb"
