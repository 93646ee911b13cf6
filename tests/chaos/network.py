"""Hosts on one machine, their links, and what can be wrong with these.

The program that uses it runs in a user and network namespace of its own (`unshare -Urn`): there it
is root, has an address on the bridge beside the hosts, and everything goes when it ends.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.chaos.wires import Weather, Wires, device

PREFIX = "10.77.0."
OWN = f"{PREFIX}254"
SLOW = ("rate", "200kbit", "burst", "4kb", "latency", "800ms")
"""A link that sends and heartbeats of a few clients nearly fill."""
INSIDE = "ip link set lo up && echo ready && exec cat"


@dataclass(frozen=True)
class Host:
    """One of them."""

    address: str
    enter: tuple[str, ...]
    """Words before a command that let it run there."""
    wire: str
    """Its device among the wires."""


@dataclass
class Network:
    """All of them."""

    hosts: list[Host]
    wires: Wires
    _broken: list[tuple[str, ...]] = field(default_factory=list)
    """Commands that mend what is wrong."""

    def cut(self, source: Host, to: Sequence[Host]) -> None:
        """Nothing of one host arrives at the others; what they send arrives."""
        for other in to:
            blackhole = ("blackhole", f"{other.address}/32")
            _run(*source.enter, "ip", "route", "add", *blackhole)
            self._broken.append((*source.enter, "ip", "route", "del", *blackhole))

    def part(self, one: Host, others: Sequence[Host]) -> None:
        """Nothing arrives between one host and the others."""
        self.cut(one, others)
        for other in others:
            self.cut(other, [one])

    def slow(self, host: Host) -> None:
        """What a host sends is slow."""
        queue = ("qdisc", "{}", "dev", "eth0", "root")
        _run(*host.enter, "tc", *(word.format("add") for word in queue), "tbf", *SLOW)
        self._broken.append((*host.enter, "tc", *(word.format("del") for word in queue)))

    def disturb(self, one: Host, others: Sequence[Host], weather: Weather) -> None:
        """What is sent between one host and the others is late, or lost."""
        for other in others:
            for source, to in ((one, other), (other, one)):
                route = ("ip", "route", "{}", f"{to.address}/32", "dev", source.wire)
                _run(*source.enter, *(word.format("add") for word in route))
                self._broken.append((*source.enter, *(word.format("del") for word in route)))
        self.wires.begin(weather)

    def heal(self) -> None:
        """All links are as new."""
        self.wires.end()
        while self._broken:
            _run(*self._broken.pop())


@contextmanager
def network(count: int) -> Iterator[Network]:
    """So many hosts beside this program."""
    with ExitStack() as stack:
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge", "type", "bridge")
        _run("ip", "addr", "add", f"{OWN}/24", "dev", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        hosts, wires = list[Host](), dict[str, int]()
        for number in range(1, count + 1):
            inside = stack.enter_context(_namespace())
            enter = ("nsenter", f"--target={inside.pid}", "--net")
            port, address = f"port{number}", f"{PREFIX}{number}"
            peer = ("type", "veth", "peer", "name", "eth0", "netns", str(inside.pid))
            _run("ip", "link", "add", port, *peer)
            _run("ip", "link", "set", port, "master", "bridge", "up")
            _run(*enter, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            _run(*enter, "ip", "link", "set", "eth0", "up")
            wire = f"wire{number}"
            wires[address] = device(wire)
            stack.callback(os.close, wires[address])
            _run("ip", "link", "set", wire, "netns", str(inside.pid))
            _run(*enter, "ip", "link", "set", wire, "up")
            hosts.append(Host(address, enter, wire))
        yield Network(hosts, Wires(wires))


@contextmanager
def _namespace() -> Iterator[subprocess.Popen[str]]:
    """A process that has a network of its own, as long as this program lives."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sh", "-c", INSIDE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
