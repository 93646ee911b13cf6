"""The only interface to the clock, the network, the disk and randomness.

The simulator brings its own of each. Every engine part receives one `Runtime` value. asyncio's own
sleep, timeout, TaskGroup and Future may be used freely, because the simulator runs them on virtual
time.
"""

from engine.runtime.clock import Clock, SystemClock
from engine.runtime.disk import Disk, File, SystemDisk
from engine.runtime.doors import Runtime, system_runtime
from engine.runtime.entropy import Entropy, SystemEntropy
from engine.runtime.network import Network, SystemNetwork
from engine.runtime.tls import ClientTls, ServerTls, TlsMode

__all__ = [
    "ClientTls",
    "Clock",
    "Disk",
    "Entropy",
    "File",
    "Network",
    "Runtime",
    "ServerTls",
    "SystemClock",
    "SystemDisk",
    "SystemEntropy",
    "SystemNetwork",
    "TlsMode",
    "system_runtime",
]
