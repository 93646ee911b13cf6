"""Connections that are opened and dropped as fast as one process can, and TLS handshakes that begin
and never end, by a process of its own.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from engine.runtime.network import allow_descriptors

MODULE = "tests.integration.broker.connect_floods"
CONNECT_TIMEOUT_S = 30
HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
"""The first bytes of a ClientHello."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER for a close that says nothing: the other side meets a reset."""


def drop(address: tuple[str, int], count: int) -> None:
    """Open and close: cleanly, by reset, and with half a frame behind."""
    for number in range(count):
        connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        try:
            if number % 3 == 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if number % 3 == 2:
                connection.sendall(b"\0\0\1\0\0")
        except OSError:
            pass  # It was closed on the other side before.
        connection.close()


def half_open(address: tuple[str, int], count: int, open_max: int = 1500) -> None:
    """Begin handshakes, keep the newest open, then let all go."""
    allow_descriptors(open_max + 100)
    held: deque[socket.socket] = deque()
    for _ in range(count):
        connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        held.append(connection)
        try:
            connection.sendall(HELLO_BEGINS)
        except OSError:
            continue  # One too many, and closed for it.
        if len(held) > open_max:
            held.popleft().close()
    for connection in held:
        connection.close()


@contextmanager
def flooding(address: str, kind: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """The process that does it; it ends when all connections were made."""
    with subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),  # A killed test run leaves it not behind.
            *(sys.executable, "-m", MODULE, address, kind, str(count)),
        ],
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    {"drop": drop, "half-open": half_open}[sys.argv[2]]((host, int(port)), int(sys.argv[3]))
