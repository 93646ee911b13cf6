"""Writing several pieces of memory as one: what the kernel takes at once is not copied before.

Place in the walk: large answers to pulls, whose records lie apart in the log. asyncio's transports
of Python 3.11 join what they are given several of; here the kernel collects it.

Invariant: bytes leave in order; what the kernel does not take waits in the transport, copied once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from engine.foundation.units import Buffer

IOV_MAX = 1024
"""Pieces in one system call (Linux)."""


def gather_write(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> None:
    """Write `pieces` one after the other."""
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
