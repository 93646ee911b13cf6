"""Packets between hosts that pass through this program, where they are late, or lost.

Each host has a device whose other end is a file here. A route to another host by it lets this
program have the packets, whole; it puts them out at the other host's device. The kernel of a host
notices nothing but the delay and the loss.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000
PACKET_BYTES_MAX: Final = 65536
PACKETS_AT_ONCE: Final = 64
DESTINATION: Final = slice(16, 20)
"""Of a header of IPv4."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How packets fare."""

    late_s: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0
    """Of one."""


def device(name: str) -> int:
    """Make one of this name; its file."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


@dataclass
class Wires:
    """Those of all hosts."""

    files: dict[str, int]
    """Address → the file of its device."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def begin(self, weather: Weather) -> None:
        """Forward what comes."""
        for file in self.files.values():
            asyncio.get_running_loop().add_reader(file, self._forward, file, weather)

    def end(self) -> None:
        """Forward no more."""
        for file in self.files.values():
            asyncio.get_running_loop().remove_reader(file)

    def _forward(self, file: int, weather: Weather) -> None:
        with suppress(BlockingIOError):
            for _ in range(PACKETS_AT_ONCE):
                packet = os.read(file, PACKET_BYTES_MAX)
                is_ipv4 = packet[0] >> 4 == 4
                to = self.files.get(socket.inet_ntoa(packet[DESTINATION])) if is_ipv4 else None
                if to is None or self.chance.random() < weather.lost:
                    continue
                late_s = self.chance.uniform(*weather.late_s)
                asyncio.get_running_loop().call_later(late_s, _put_out, to, packet)


def _put_out(file: int, packet: bytes) -> None:
    with suppress(OSError):  # A device that is full loses it, as any does.
        os.write(file, packet)
