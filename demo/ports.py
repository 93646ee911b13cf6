"""Finds free TCP ports on 127.0.0.1 for processes whose ports must be set in advance.

A broker on port P also uses P - 2 and P + 1, so ports come as a block. Another process may take a
port between our look and its use; the range is one that the system does not hand out by itself,
which makes that unlikely.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from demo.processes import StageError

LOWEST, ATTEMPTS = 12_000, 200


def free_port_block(size: int) -> int:
    """First of `size` neighbouring free ports."""
    for _ in range(ATTEMPTS):
        first = random.randrange(LOWEST, _first_ephemeral_port() - size)  # noqa: S311 - no secret.
        if all(_is_free(port) for port in range(first, first + size)):
            return first
    raise StageError(f"no {size} neighbouring free ports in {ATTEMPTS} tries")


def free_broker_port() -> int:
    """A port P such that P - 2 to P + 1 are free."""
    return free_port_block(4) + 2


def _first_ephemeral_port() -> int:
    """Where the ports begin that the system gives to outgoing connections."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
