"""Bundles the clock, network, disk and randomness interfaces in one `Runtime` value."""

from __future__ import annotations

from dataclasses import dataclass

from engine.runtime.clock import Clock, SystemClock
from engine.runtime.disk import Disk, SystemDisk
from engine.runtime.entropy import Entropy, SystemEntropy
from engine.runtime.network import Network, SystemNetwork


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a node may touch of the world."""

    clock: Clock
    network: Network
    disk: Disk
    entropy: Entropy


def system_runtime() -> Runtime:
    """The real clock, sockets, files and random source of this machine."""
    return Runtime(SystemClock(), SystemNetwork(), SystemDisk(), SystemEntropy())
